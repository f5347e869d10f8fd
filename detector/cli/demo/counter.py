"""The kernel's own count of a cgroup's throttled time, read by the demo and by no part of the product."""

import asyncio
import bisect
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

_MOUNTINFO = Path("/proc/self/mountinfo")
PERIOD_S = 0.25


@dataclass(frozen=True)
class CpuMount:
    """Where the hierarchy with the CPU controller is mounted, and whether it is version 2."""

    root: Path
    v2: bool


def cpu_mount(mountinfo: Path = _MOUNTINFO) -> CpuMount | None:
    """Find the mount by proc_pid_mountinfo(5): v1 names its controllers in the super options."""
    unified: CpuMount | None = None
    try:
        lines = mountinfo.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        mounted, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root = Path(mounted.split()[4].replace("\\040", " "))
        if kind == "cgroup" and "cpu" in options.split(","):
            return CpuMount(root, v2=False)
        if kind == "cgroup2" and unified is None:
            unified = CpuMount(root, v2=True)
    return unified


@dataclass
class ThrottledCounter:
    """Samples of a cgroup's throttled seconds over time; `read` gives the counter's value now."""

    read: Callable[[], float | None]
    clock: Callable[[], float] = time.time
    _times: list[float] = field(default_factory=list)
    _values: list[float] = field(default_factory=list)

    def sample(self) -> None:
        """Take one sample, stamped with the middle of the reading."""
        before = self.clock()
        value = self.read()
        after = self.clock()
        at_unix_s = (before + after) / 2
        if value is not None and (not self._times or at_unix_s > self._times[-1]):  # a clock step
            self._times.append(at_unix_s)
            self._values.append(value)

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(PERIOD_S)

    def between(self, start_unix_s: float, end_unix_s: float) -> float | None:
        """Return the throttled seconds in the interval, or None where samples do not cover it."""
        first, last = self._at(start_unix_s), self._at(end_unix_s)
        return None if first is None or last is None else last - first

    def _at(self, at_unix_s: float) -> float | None:
        """Interpolate between the two samples around a time."""
        if not self._times or not self._times[0] <= at_unix_s <= self._times[-1]:
            return None
        right = bisect.bisect_left(self._times, at_unix_s)
        if self._times[right] == at_unix_s:
            return self._values[right]
        left = right - 1
        share = (at_unix_s - self._times[left]) / (self._times[right] - self._times[left])
        return self._values[left] + share * (self._values[right] - self._values[left])


def throttled_reader(mount: CpuMount, cgroup: str) -> Callable[[], float | None]:
    """Return a function that reads the throttled seconds of `cgroup` (a path below the mount)."""
    stat = mount.root / cgroup.lstrip("/") / "cpu.stat"

    def read() -> float | None:
        try:
            return throttled_s(stat.read_text(encoding="ascii").splitlines())
        except OSError:
            return None  # gone: the samples end here

    return read


def throttled_s(lines: Iterable[str]) -> float | None:
    """Parse cpu.stat: `throttled_time` is in ns (v1), `throttled_usec` in microseconds (v2)."""
    for line in lines:
        name, _, value = line.partition(" ")
        if name == "throttled_time":
            return int(value) / 1e9
        if name == "throttled_usec":
            return int(value) / 1e6
    return None
