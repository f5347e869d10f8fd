"""The folder where running agents can be found: one socket each."""

import os
from collections.abc import Mapping
from pathlib import Path


def control_dir(environ: Mapping[str, str] | None = None, euid: int | None = None) -> Path:
    """`agents` in $TAILCAUSE_STATE, else in /var/lib/tailcause for root, else in the XDG state folder."""
    environ = os.environ if environ is None else environ
    euid = os.geteuid() if euid is None else euid
    if environ.get("TAILCAUSE_STATE"):
        return Path(environ["TAILCAUSE_STATE"]) / "agents"
    if euid == 0:
        return Path("/var/lib/tailcause/agents")
    xdg = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME", "/")) / ".local/state")
    return Path(xdg) / "tailcause/agents"
