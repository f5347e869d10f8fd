"""What a running workload tells about itself in its state folder."""

from pathlib import Path

import msgspec

from kernels.errors import WorkloadError
from kernels.supervisor.files import write_atomically

_MAX_SOCKET_PATH = 107
"""sun_path holds 108 bytes with its terminator, unix(7)."""


class ReplicaState(msgspec.Struct, frozen=True):
    """One server of the workload; `instance` is its `service.instance.id`, kept across deploys."""

    instance: str
    pid: int
    port: int
    cgroup: str | None


class NetworkState(msgspec.Struct, frozen=True):
    """The network of `up --network`: clients reach the servers through the namespace `gate`.

    `to_clients` and `to_servers` are its two devices, `client` and `server` the addresses at either end.
    """

    gate: str
    inside: str
    link: str
    client: str
    server: str
    to_clients: str = "clients"
    to_servers: str = "servers"


class WorkloadState(msgspec.Struct, frozen=True):
    """The content of `workload.json`; `cgroup` is a path below each hierarchy's mount.

    `server_pid` is the first replica's, `host` and `port` are where clients go, and `cgroup` holds all replicas.
    """

    pid: int
    server_pid: int
    port: int
    cgroup: str | None
    service: str
    model: str
    revision: str
    version: str
    settings: dict[str, str]
    replicas: tuple[ReplicaState, ...] = ()
    host: str = "127.0.0.1"
    network: NetworkState | None = None
    restarts: bool = False


def state_file(directory: Path) -> Path:
    """Name the file that holds the state."""
    return directory / "workload.json"


def control_socket(directory: Path) -> Path:
    """Name the socket on which the supervisor takes commands."""
    return _socket(directory, "control.sock")


def hook_socket(directory: Path, instance: str) -> Path:
    """Name the socket by which a fault reaches into a server, `up --hook`."""
    return _socket(directory, f"{instance}.hook")


def _socket(directory: Path, name: str) -> Path:
    path = directory.absolute() / name
    if len(str(path).encode()) > _MAX_SOCKET_PATH:
        raise WorkloadError(f"{path} is too long for a socket: choose a shorter --state")
    return path


def read_state(directory: Path) -> WorkloadState:
    """Read the state of the workload that runs with this folder."""
    try:
        return msgspec.json.decode(state_file(directory).read_bytes(), type=WorkloadState)
    except (OSError, msgspec.MsgspecError) as exc:
        raise WorkloadError(
            f"no workload runs with --state {directory}: start `tailcause-workload up` first"
        ) from exc


def write_state(directory: Path, state: WorkloadState) -> None:
    """Replace the state in one step."""
    write_atomically(state_file(directory), msgspec.json.encode(state), mode=0o644)
