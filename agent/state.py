"""The folders of the agent: where running ones can be found, and where what cannot be sent waits."""

import os
from collections.abc import Mapping
from pathlib import Path


def control_dir(environ: Mapping[str, str] | None = None, euid: int | None = None) -> Path:
    """Return the folder with one socket for each agent that runs."""
    return _state(environ, euid) / "agents"


def spool_dir(environ: Mapping[str, str] | None = None, euid: int | None = None) -> Path:
    """Return the folder with one spool for each back end."""
    return _state(environ, euid) / "agent" / "spool"


def _state(environ: Mapping[str, str] | None, euid: int | None) -> Path:
    """Return $TAILCAUSE_STATE, else /var/lib/tailcause for root, else the XDG state folder's."""
    environ = os.environ if environ is None else environ
    euid = os.geteuid() if euid is None else euid
    if environ.get("TAILCAUSE_STATE"):
        return Path(environ["TAILCAUSE_STATE"])
    if euid == 0:
        return Path("/var/lib/tailcause")
    xdg = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME", "/")) / ".local/state")
    return Path(xdg) / "tailcause"
