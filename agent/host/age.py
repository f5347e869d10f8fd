"""Since when a container has been running."""

from collections.abc import Iterable

from agent.host import processes
from agent.host.files import read_text
from agent.host.hierarchies import Hierarchy
from agent.host.paths import HostPaths

_LOOKED_AT = 8  # a container's first process has one of its lowest pids


def oldest_start_ticks(paths: HostPaths, trees: Iterable[Hierarchy], cgroup: str) -> int | None:
    """Return when the oldest process of a cgroup started, in clock ticks since boot; None without any.

    The kernel keeps no creation time of a cgroup. Of its processes those with the lowest pids are looked at, and only
    those that say themselves that they live there: in another pid namespace the numbers mean others.
    """
    for tree in trees:
        try:
            pids = read_text(tree.mount / cgroup.lstrip("/") / "cgroup.procs").split()
        except OSError:
            continue
        starts = [
            ticks
            for pid in sorted(map(int, pids))[:_LOOKED_AT]
            if (ticks := _start_in(paths, pid, cgroup)) is not None
        ]
        if starts:
            return min(starts)
    return None


def _start_in(paths: HostPaths, pid: int, cgroup: str) -> int | None:
    try:
        lines = read_text(paths.procfs / str(pid) / "cgroup").splitlines()
        if any(line.endswith(cgroup) for line in lines):
            return processes.start_ticks(paths, pid)
    except (OSError, ValueError):  # it has just ended
        pass
    return None
