"""Which cgroup hierarchies are mounted, and which of them owns a controller: v1, v2 or hybrid.

Source: proc_pid_mountinfo(5); Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.host.files import read_text
from agent.host.paths import HostPaths

V2 = "v2"
"""Stands for the unified hierarchy where a controller's name is asked for."""


@dataclass(frozen=True)
class Hierarchy:
    """One mounted cgroup tree; `root` is the cgroup that its mount point shows."""

    version: int
    controllers: frozenset[str]
    mount: Path
    root: str

    def below_mount(self, path: str) -> str | None:
        """Return a process's cgroup path as seen below the mount, None if it lies outside."""
        if self.root == "/":
            return path
        if path == self.root or path.startswith(self.root + "/"):
            return path[len(self.root) :] or "/"
        return None


@dataclass(frozen=True)
class Hierarchies:
    """All hierarchies of a host."""

    trees: tuple[Hierarchy, ...]

    def v1(self, controller: str) -> Hierarchy | None:
        """Return the v1 tree that a controller is mounted in."""
        return next((t for t in self.trees if t.version == 1 and controller in t.controllers), None)

    @property
    def v2(self) -> Hierarchy | None:
        """Return the unified tree."""
        return next((tree for tree in self.trees if tree.version == 2), None)

    @property
    def mode(self) -> str:
        """Name the layout: `v1`, `v2`, `hybrid` or `none`."""
        versions = {tree.version for tree in self.trees}
        names = {frozenset((1,)): "v1", frozenset((2,)): "v2", frozenset((1, 2)): "hybrid"}
        return names.get(frozenset(versions), "none")


def discover(paths: HostPaths) -> Hierarchies:
    """Read the mounted hierarchies; raises OSError when the mount table cannot be read."""
    lines = read_text(paths.mountinfo).splitlines()
    return Hierarchies(tuple(_unique(_parse(lines, paths))))


def _parse(lines: Iterable[str], paths: HostPaths) -> Iterator[Hierarchy]:
    for line in lines:
        before, separator, after = line.partition(" - ")
        fields, tail = before.split(" "), after.split(" ")
        if (
            not separator
            or len(fields) < 5
            or len(tail) < 3
            or tail[0] not in {"cgroup", "cgroup2"}
        ):
            continue
        version = 2 if tail[0] == "cgroup2" else 1
        options = frozenset(tail[2].split(",")) if version == 1 else frozenset((V2,))
        yield Hierarchy(version, options, paths.mounted(_unescape(fields[4])), _unescape(fields[3]))


def _unique(trees: Iterable[Hierarchy]) -> Iterator[Hierarchy]:
    """Keep the first mount of each tree: bind mounts show the same cgroups twice."""
    seen: set[tuple[int, frozenset[str]]] = set()
    for tree in trees:
        identity = (tree.version, tree.controllers - {"rw", "ro"})
        if identity not in seen:
            seen.add(identity)
            yield tree


def _unescape(text: str) -> str:
    for escape, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, plain)
    return text
