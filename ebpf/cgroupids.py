"""Which hierarchy names a task's cgroup, and which path an id of it has.

A cgroup's id is the inode number of its directory (64-bit kernels, since 5.5). On a machine whose CPU controller is in
a v1 hierarchy, that hierarchy counts: a hybrid machine's v2 tree may hold every process in its root.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ebpf.errors import NotSupportedError
from ebpf.layout import Hierarchy

MAX_DEPTH = 12


@dataclass(frozen=True)
class Mounted:
    """Where the hierarchy that counts is mounted."""

    hierarchy: Hierarchy
    mount: Path


def find_hierarchy(proc: Path = Path("/proc")) -> Mounted:
    """Return the hierarchy of the CPU controller; raises NotSupportedError when no cgroups are mounted."""
    unified: Mounted | None = None
    for line in (proc / "self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        mount = Path(before.split()[4])
        kind, _, options = after.split(maxsplit=2)
        if kind == "cgroup" and "cpu" in options.split(","):
            return Mounted(Hierarchy.CPU_CONTROLLER, mount)
        if kind == "cgroup2" and unified is None:
            unified = Mounted(Hierarchy.UNIFIED, mount)
    if unified is None:
        raise NotSupportedError(
            "no cgroup hierarchy is mounted: per-cgroup readings are not possible"
        )
    return unified


class CgroupPaths:
    """Resolves ids to paths below the mount ("/" is the root); walks the tree again when an id is unknown."""

    def __init__(self, mount: Path) -> None:
        self._mount = mount
        self._paths: dict[int, str] = {}

    def path(self, cgroup_id: int) -> str | None:
        """Return the path of a cgroup as of the last walk; None when it is not there."""
        return self._paths.get(cgroup_id)

    def walk(self) -> None:
        """Look at the whole tree again; remembers cgroups that are gone until `forget`."""
        self._paths.update(self._found())

    def exists(self, cgroup_id: int) -> bool:
        """Tell, without a walk, whether the cgroup is still where the last walk found it."""
        path = self._paths.get(cgroup_id)
        if path is None:
            return False
        try:
            return (self._mount / path.lstrip("/")).stat().st_ino == cgroup_id
        except FileNotFoundError:
            return False

    def alive(self) -> set[int]:
        """Return the ids that exist now."""
        return {cgroup_id for cgroup_id, _ in self._found()}

    def forget(self, cgroup_id: int) -> None:
        """Drop an id whose cgroup is gone."""
        self._paths.pop(cgroup_id, None)

    def _found(self) -> Iterator[tuple[int, str]]:
        pending = [(self._mount, "", 0)]
        while pending:
            directory, path, depth = pending.pop()
            try:
                yield directory.stat().st_ino, path or "/"
                if depth < MAX_DEPTH:
                    with os.scandir(directory) as entries:
                        pending += [
                            (Path(entry.path), f"{path}/{entry.name}", depth + 1)
                            for entry in entries
                            if entry.is_dir(follow_symlinks=False)
                        ]
            except FileNotFoundError:  # removed while we walked
                continue
