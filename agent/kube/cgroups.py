"""Where the cgroups of containers lie, for those that are known by their id alone."""

import os
from collections import deque
from collections.abc import Collection

from agent.host.containers import identify
from agent.host.hierarchies import Hierarchies, Hierarchy

_MAX_FOLDERS = 20_000


def find_cgroups(hierarchies: Hierarchies, containers: Collection[str]) -> dict[str, str]:
    """Return the cgroup paths, below the mounts, of containers by their ids; the topmost of each.

    The tree is the one that a process's place is told by: of the cpu controller, else the unified one.
    """
    tree = hierarchies.v1("cpu") or hierarchies.v2
    return _search(tree, set(containers)) if tree is not None else {}


def _search(tree: Hierarchy, missing: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    queue = deque([""])
    for _ in range(_MAX_FOLDERS):
        if not (queue and missing):
            break
        path = queue.popleft()
        container = identify(path).container_id
        if container in missing:
            found[container] = path
            missing.discard(container)
        else:
            queue.extend(f"{path}/{name}" for name in _children(f"{tree.mount}{path}"))
    return found


def _children(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # gone, or not to be read
        return []
