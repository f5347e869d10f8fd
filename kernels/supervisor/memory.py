"""The memory of one cgroup: what it holds, and its limit (v1 cgroup-v1/memory.rst, v2 cgroup-v2.rst)."""

from dataclasses import dataclass
from pathlib import Path

from kernels.supervisor.cgroups import Cgroup, CgroupError
from kernels.supervisor.files import write_existing

_NO_LIMIT = 1 << 60
"""v1 says "no limit" with the largest number of pages that it can count."""


@dataclass(frozen=True)
class MemoryUse:
    """Bytes in use: all, and of them the file pages, which the kernel can take back."""

    total: int
    files: int

    @property
    def kept(self) -> int:
        """What stays without swap, however tight the limit."""
        return max(0, self.total - self.files)


class MemoryGroup:
    """The memory controller's view of a cgroup."""

    def __init__(self, cgroup: Cgroup) -> None:
        ruled = cgroup.ruled_by("memory", "memory")
        self._v2 = ruled.v2
        self._directory = ruled.directory
        self.limit_file = ruled.directory / ("memory.max" if ruled.v2 else "memory.limit_in_bytes")

    def use(self) -> MemoryUse:
        """Read what the group and all below it hold."""
        total = self._read("memory.current" if self._v2 else "memory.usage_in_bytes")
        return MemoryUse(int(total), self._stat("file" if self._v2 else "total_cache"))

    def limit_text(self) -> str:
        """Read the limit in force, as text to write back."""
        text = self._read(self.limit_file.name).strip()
        return "-1" if text.isdigit() and int(text) >= _NO_LIMIT else text

    def set_limit(self, limit_bytes: int) -> None:
        """Put a limit in force; pages above it are taken back at once."""
        self._write(str(limit_bytes))

    def lift_limit(self, text: str) -> None:
        """Put back what `limit_text` gave."""
        self._write(text)

    def kills(self) -> int:
        """Count the processes that the kernel has killed here for want of memory."""
        pairs = dict(map(str.split, self._read(self._events).splitlines()))
        return int(pairs.get("oom_kill", 0))

    @property
    def _events(self) -> str:
        return "memory.events" if self._v2 else "memory.oom_control"

    def _write(self, text: str) -> None:
        try:
            write_existing(self.limit_file, text)
        except OSError as exc:
            reason = f"{exc.strerror} (needs root; busy: more than that is in use)"
            raise CgroupError(f"cannot set {self.limit_file} to {text}: {reason}") from exc

    def _stat(self, key: str) -> int:
        return int(dict(map(str.split, self._read("memory.stat").splitlines())).get(key, 0))

    def _read(self, name: str) -> str:
        file: Path = self._directory / name
        try:
            return file.read_text()
        except OSError as exc:
            raise CgroupError(f"cannot read {file}: {exc.strerror} (needs root)") from exc
