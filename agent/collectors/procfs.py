"""What the collectors of the host's own files share."""

from agent.collectors.base import NoData
from agent.host.files import read_text
from agent.host.paths import HostPaths
from agent.telemetry.model import SignalState

_NS_PER_S = 1_000_000_000


def read(paths: HostPaths, name: str) -> str:
    """Return a file below procfs; raises `NoData` where this kernel or container lacks it."""
    path = paths.procfs / name
    try:
        return read_text(path)
    except FileNotFoundError as exc:
        raise NoData(
            f"{path} does not exist", remedy="mount the host's procfs and give --path.procfs"
        ) from exc
    except PermissionError as exc:
        raise NoData(
            f"{path} may not be read", SignalState.NO_PERMISSION, remedy="run the agent as root"
        ) from exc


def boot_unix_ns(paths: HostPaths) -> int:
    """Return when the kernel's counters began, 0 where it does not say."""
    for line in read(paths, "stat").splitlines():
        if line.startswith("btime "):
            return int(line.split()[1]) * _NS_PER_S
    return 0


def keyed(text: str) -> dict[str, int]:
    """Return the first number of each line by its key (`Key: 12 kB` or `key 12`)."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[1].isdigit():
            values[fields[0].rstrip(":")] = int(fields[1])
    return values
