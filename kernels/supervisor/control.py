"""The control socket: one JSON request a line, one JSON reply a line, one command at a time."""

import socket
from pathlib import Path

import msgspec

from kernels.errors import WorkloadError
from kernels.supervisor.state import control_socket

DEPLOY_TIMEOUT_S = 120.0


class DeployRequest(msgspec.Struct, frozen=True, tag_field="command", tag="deploy"):
    """Replace the server by a new revision; `settings` go on top of those given to `up`."""

    revision: str
    version: str
    settings: dict[str, str] = {}


class Deployed(msgspec.Struct, frozen=True, tag_field="event", tag="deployed"):
    """A finished deploy; from `new_accepting` to `old_stopped` both replicas took requests."""

    revision: str
    version: str
    settings: dict[str, str]
    pid: int
    started_unix_s: float
    new_accepting_unix_s: float
    old_stopped_accepting_unix_s: float
    old_exited_unix_s: float


class Refused(msgspec.Struct, frozen=True, tag_field="event", tag="refused"):
    """The command was not carried out; what ran before still runs."""

    error: str


Request = DeployRequest
Reply = Deployed | Refused


def ask(directory: Path, request: Request, timeout_s: float = DEPLOY_TIMEOUT_S) -> Deployed:
    """Send one request to the supervisor of a state folder and wait for its reply."""
    path = control_socket(directory)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout_s)
        try:
            client.connect(str(path))
            client.sendall(msgspec.json.encode(request) + b"\n")
            line = client.makefile("rb").readline()
        except TimeoutError as exc:
            raise WorkloadError(f"no reply from {path} within {timeout_s:.0f} s") from exc
        except OSError as exc:
            raise WorkloadError(
                f"no workload answers at {path}: start `tailcause-workload up` first"
            ) from exc
    if not line:
        raise WorkloadError("the workload ended before it answered")
    reply = msgspec.json.decode(line, type=Reply)
    if isinstance(reply, Refused):
        raise WorkloadError(reply.error)
    return reply
