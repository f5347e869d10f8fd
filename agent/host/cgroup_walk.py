"""Which cgroups there are, without listing every directory in every round."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agent.host.hierarchies import Hierarchy
from agent.host.rarely import Rarely

_AFRESH_EVERY = 10


@dataclass(frozen=True)
class WalkLimits:
    """Bounds on how much of the trees is looked at."""

    depth: int = 16
    cgroups: int = 1000


class CgroupWalk:
    """Finds the cgroups of some hierarchies, each path once, shallow ones first.

    The directories are listed anew when the link count of one has changed, which is two more than it has children,
    when `suspect` was called because one is gone, and every tenth time or after 10 s. What waits for that: a child that was replaced
    by another, and the first child of a cgroup in a tree that is not the first, where leaves are not looked at.
    """

    def __init__(
        self,
        trees: Iterable[Hierarchy],
        limits: WalkLimits,
        wanted: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._trees = tuple(trees)
        self._limits = limits
        self._wanted = wanted
        self._links: dict[str, int] = {}
        self._found: list[str] = []
        self._left_out = 0
        self._afresh = Rarely(_AFRESH_EVERY)
        self.overflow = 0
        """Cgroups and subtrees left out so far because of the limits."""

    def paths(self) -> list[str]:
        """Return the paths below the mounts that are wanted."""
        if self._afresh.due(time.monotonic()) or self._changed():
            self._walk()
        self.overflow += self._left_out
        return self._found

    def suspect(self) -> None:
        """Look at every directory the next time."""
        self._afresh.hasten()

    def _changed(self) -> bool:
        try:
            return any(os.stat(path).st_nlink != n for path, n in self._links.items())  # noqa: PTH116  hot
        except OSError:  # gone
            return True

    def _walk(self) -> None:
        self._left_out = 0
        self._links = {}
        found: dict[str, None] = {}
        queue = deque((tree, "/", 0) for tree in self._trees)
        while queue:
            tree, path, depth = queue.popleft()
            if path not in found and self._wanted(path):
                if len(found) >= self._limits.cgroups:
                    self._left_out += 1
                    continue
                found[path] = None
            children = self._children(directory(tree, path), path == "/" or tree is self._trees[0])
            if depth >= self._limits.depth:
                self._left_out += len(children)
                continue
            queue.extend((tree, os.path.join(path, name), depth + 1) for name in children)  # noqa: PTH118  hot
        self._found = list(found)

    def _children(self, path: str, watched: bool) -> list[str]:
        try:
            links = os.stat(path).st_nlink  # noqa: PTH116  hot
            if watched or links != 2:
                self._links[path] = links
            if links == 2:
                return []
            with os.scandir(path) as entries:
                return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
        except OSError:
            return []  # gone since its parent was listed


def directory(tree: Hierarchy, path: str) -> str:
    """Return where a cgroup of a tree lies."""
    return f"{tree.mount}{path}".rstrip("/")
