"""The state folder: where it is, who runs in it, and how the command line finds a running service."""

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec

from detector.errors import CannotStartError

SERVICE_FILE = "service.json"
LOCK_FILE = "service.lock"


class ServiceRecord(msgspec.Struct, frozen=True):
    """What a running service says of itself in STATE/service.json."""

    pid: int
    host: str
    api_port: int
    otlp_port: int
    started_unix_s: float


def default_state_dir(environ: Mapping[str, str] | None = None, euid: int | None = None) -> Path:
    """`$TAILCAUSE_STATE`, else /var/lib/tailcause for root, else the XDG state folder.

    Environment and user default to this process's.
    """
    environ = os.environ if environ is None else environ
    euid = os.geteuid() if euid is None else euid
    if environ.get("TAILCAUSE_STATE"):
        return Path(environ["TAILCAUSE_STATE"])
    if euid == 0:
        return Path("/var/lib/tailcause")
    xdg = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME", "/")) / ".local/state")
    return Path(xdg) / "tailcause"


def prepare(state: Path) -> None:
    """Create the state folder; raises `CannotStartError` when it cannot be written."""
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o750)
        probe = state / f".write-{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as exc:
        raise CannotStartError(
            f"cannot write the state folder {state}: {exc.strerror}; "
            "free space or choose another one with --state or TAILCAUSE_STATE"
        ) from exc


def lock(state: Path) -> IO[bytes]:
    """Take the state folder for this process until the returned file is closed."""
    handle = (state / LOCK_FILE).open("wb")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        handle.close()
        raise CannotStartError(
            f"another tailcause service uses {state}; stop it or choose another one with --state"
        ) from exc
    return handle


def write_record(state: Path, record: ServiceRecord) -> None:
    """Publish the running service, atomically."""
    temporary = state / f".{SERVICE_FILE}.{record.pid}"
    temporary.write_bytes(msgspec.json.encode(record))
    temporary.replace(state / SERVICE_FILE)


def read_record(state: Path) -> ServiceRecord | None:
    """Return the service that runs in this folder; None when none does."""
    try:
        record = msgspec.json.decode((state / SERVICE_FILE).read_bytes(), type=ServiceRecord)
    except (OSError, msgspec.MsgspecError):
        return None
    return record if _is_alive(record.pid) else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs, as somebody else
        return True
    return True


def remove_record(state: Path) -> None:
    """Withdraw the record when the service stops."""
    (state / SERVICE_FILE).unlink(missing_ok=True)
