"""What procfs says of one process."""

from dataclasses import dataclass

from agent.host.files import read_text
from agent.host.hierarchies import Hierarchies
from agent.host.paths import HostPaths

_PREFERRED_CONTROLLERS = ("cpu", "memory", "name=systemd")


@dataclass(frozen=True)
class ProcessPlace:
    """Where a process lives: its cgroup below the mounts, and every cgroup path it has."""

    cgroup: str
    all_paths: tuple[str, ...]


def start_ticks(paths: HostPaths, pid: int) -> int:
    """Return when a process started, in clock ticks since boot: with the pid it is unique.

    Raises OSError when there is no such process. Source: proc_pid_stat(5), field 22.
    """
    text = read_text(paths.procfs / str(pid) / "stat")
    return int(text[text.rindex(")") + 2 :].split()[19])


def in_nested_pid_namespace(paths: HostPaths, pid: int) -> bool:
    """Tell whether a process knows itself by another pid than this procfs does; raises OSError."""
    for line in read_text(paths.procfs / str(pid) / "status").splitlines():
        if line.startswith("NSpid:"):
            return len(line.split()) > 2
    return False


def place(paths: HostPaths, hierarchies: Hierarchies, pid: int) -> ProcessPlace:
    """Return a process's cgroups; raises OSError when there is no such process.

    A hybrid host may hold a process in another cgroup per controller: throttling decides, so the
    cpu controller's goes first, then the unified tree's; the root only if all of them are.
    """
    by_controller = _parse(read_text(paths.procfs / str(pid) / "cgroup"))
    candidates = [_below_mount(hierarchies, name, by_controller) for name in _order(hierarchies)]
    known = [path for path in candidates if path is not None]
    chosen = next((path for path in known if path != "/"), "/")
    return ProcessPlace(chosen, tuple(by_controller.values()))


def _order(hierarchies: Hierarchies) -> tuple[str, ...]:
    if hierarchies.v1("cpu") is None:
        return ("", *_PREFERRED_CONTROLLERS)
    return ("cpu", "", *_PREFERRED_CONTROLLERS[1:])


def _below_mount(
    hierarchies: Hierarchies, controller: str, by_controller: dict[str, str]
) -> str | None:
    tree = hierarchies.v1(controller) if controller else hierarchies.v2
    path = by_controller.get(controller)
    return tree.below_mount(path) if tree is not None and path is not None else None


def _parse(text: str) -> dict[str, str]:
    """Return paths by controller; the unified hierarchy has the empty name."""
    by_controller: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            by_controller[controller] = path.removesuffix(" (deleted)")
    return by_controller
