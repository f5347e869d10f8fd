"""A memory limit for a cgroup of the CPU hierarchy: in the same directory on v2, in a twin of it on v1."""

import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.kernel_workloads import Cgroup

V1 = Path("/sys/fs/cgroup/memory")


def why_no_memory_limit() -> str:
    """Name what is missing here, or nothing."""
    unified = Path("/sys/fs/cgroup/cgroup.controllers")
    if V1.is_dir() or (unified.exists() and "memory" in unified.read_text().split()):
        return ""
    return "needs the memory controller of cgroups"


class MemoryLimit:
    """Limits a cgroup's memory; removed on leaving. Without swap, v1 does not count how often the limit is hit."""

    def __init__(self, cgroup: Cgroup, limit_bytes: int, *, swap: bool = True) -> None:
        self._unified = cgroup.unified
        if self._unified:
            for parent in (cgroup.directory.parent.parent, cgroup.directory.parent):
                (parent / "cgroup.subtree_control").write_text("+memory")
            self._directory = cgroup.directory
            self._set("memory.max", limit_bytes)
            if not swap:
                self._set("memory.swap.max", 0)
        else:
            self._directory = V1 / cgroup.path.strip("/").replace("/", "-")
            self._directory.mkdir()
            self._set("memory.limit_in_bytes", limit_bytes)
            if not swap:
                self._set("memory.memsw.limit_in_bytes", limit_bytes)

    def add(self, pid: int) -> None:
        """Move a process in."""
        (self._directory / "cgroup.procs").write_text(str(pid))

    def hits(self) -> int:
        """Return how often the limit was hit, as the kernel counts it."""
        if not self._unified:
            return int((self._directory / "memory.failcnt").read_text())
        words = (self._directory / "memory.events").read_text().split()
        return int(words[words.index("max") + 1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for _ in range(0 if self._unified else 250):
            try:
                self._directory.rmdir()
            except OSError:
                time.sleep(0.02)
            else:
                return

    def _set(self, name: str, value: int) -> None:
        file = self._directory / name
        if file.exists():  # swap is not accounted everywhere
            file.write_text(str(value))
