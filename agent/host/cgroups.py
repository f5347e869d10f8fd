"""The cgroups of a host and their numbers, v1 and v2 merged for one path."""

import errno
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from agent.host.cgroup_files import PRESSURE_FILES, V1_FILES, V2_FILES, CgroupFile, Key, Stats
from agent.host.cgroup_walk import CgroupWalk, WalkLimits, directory
from agent.host.files import KernelFiles
from agent.host.hierarchies import Hierarchies, Hierarchy
from agent.host.psi import defined_at_root
from agent.host.rarely import Rarely

SLOW_EVERY = 10
"""Rounds, or seconds, between two readings of what is slow to read or to change."""
_ABSENT = (errno.ENODEV, errno.EOPNOTSUPP)  # gone meanwhile; pressure that is switched off
_QUOTA, _PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"
_USAGE, _INACTIVE_FILE = ("memory_usage_bytes",), ("memory_inactive_file_bytes",)
_WORKING_SET = ("memory_working_set_bytes",)
CPU_TIME: Key = ("cpu_time_s",)
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True)
class CgroupReading:
    """The numbers of one cgroup; what the machine does not have is absent, never 0."""

    path: str
    stats: Stats
    slow: Stats | None = None
    """Those that are not read in every round; None when it was not their turn."""
    idle: bool = False
    """Nothing has run in it since the last reading: but for its CPU time, its numbers are those of then."""


@dataclass
class _Known:
    """What is known of a cgroup: when its slow files are due, which of its fast ones exist, and whether it is idle."""

    slow_due: Rarely
    fast: list[tuple[str, CgroupFile]] = field(default_factory=list)
    clock: tuple[str, CgroupFile] | None = None
    """The file that has its CPU time, and what that held."""
    cpu: Stats = field(default_factory=dict)


class CgroupTree:
    """Reads the cgroups of all hierarchies; one instance per thread.

    The slow files of a cgroup are read when it is first seen and every tenth round after that, a tenth of all cgroups
    in each round, or after ten seconds where rounds are further apart. In between the fast ones are read only where something has run: what else there is to see, such as
    memory that the host takes back, waits for that round.
    """

    def __init__(
        self,
        hierarchies: Hierarchies,
        files: KernelFiles,
        limits: WalkLimits | None = None,
        wanted: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._files = files
        self._v1_cpu = hierarchies.v1("cpu")
        self._tables = tuple(_tables(hierarchies))
        trees = [tree for tree, _ in self._tables]
        first = [self._v1_cpu] if self._v1_cpu is not None else []
        every = dict.fromkeys([*first, *trees])
        self._walk = CgroupWalk(every, limits or WalkLimits(), wanted)
        self._known: dict[str, _Known] = {}
        self._turns = 0
        self.read_errors = 0
        """Files so far that were there but could not be read or understood."""

    @property
    def overflow(self) -> int:
        """Cgroups and subtrees left out so far because of the limits."""
        return self._walk.overflow

    def read_all(self) -> Iterator[CgroupReading]:
        """Yield every cgroup with at least one number, shallow ones first."""
        paths = self._walk.paths()
        self._forget(self._known.keys() - set(paths))
        now_s = time.monotonic()
        for path in paths:
            reading = self._read_due(path, now_s)
            if reading.stats or reading.slow is None or reading.slow:
                yield reading

    def read(self, path: str) -> CgroupReading:
        """Read all of one cgroup, by its path below the mounts."""
        return self._read_whole(path, _Known(Rarely(SLOW_EVERY)))

    def _read_due(self, path: str, now_s: float) -> CgroupReading:
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = _Known(Rarely(SLOW_EVERY, self._turns % SLOW_EVERY))
            self._turns += 1
        if known.slow_due.due(now_s):
            return self._read_whole(path, known)
        return self._read_fast(path, known)

    def _read_fast(self, path: str, known: _Known) -> CgroupReading:
        if known.clock is not None and known.cpu:
            name, file = known.clock
            if self._parsed(name, file.parse) == known.cpu:
                return CgroupReading(path, {CPU_TIME: known.cpu[CPU_TIME]}, idle=True)
        stats: Stats = {}
        for name, file in known.fast:
            found = self._parsed(name, file.parse)
            if found is None:
                self._walk.suspect()
                continue
            stats.update(found)
            if known.clock is not None and name == known.clock[0]:
                known.cpu = found
        return CgroupReading(path, self._completed(path, stats))

    def _read_whole(self, path: str, known: _Known) -> CgroupReading:
        known.fast.clear()
        known.clock, known.cpu = None, {}
        stats: Stats = {}
        slow: Stats = {}
        for tree, files in self._tables:
            where = directory(tree, path)
            for file in files:
                name = f"{where}/{file.name}"
                found = self._parsed(name, file.parse, keep=not file.slow)
                if found is None and file.instead:
                    found = self._parsed(f"{where}/{file.instead}", file.parse, keep=False)
                if found is None:
                    continue
                (slow if file.slow else stats).update(found)
                if not file.slow:
                    known.fast.append((name, file))
                if CPU_TIME in found:
                    known.clock, known.cpu = (name, file), found
        if _USAGE in stats and _INACTIVE_FILE in slow:
            slow[_WORKING_SET] = max(0.0, stats[_USAGE] - slow[_INACTIVE_FILE])
        slow.pop(_INACTIVE_FILE, None)
        return CgroupReading(path, self._completed(path, stats), slow)

    def _completed(self, path: str, stats: Stats) -> Stats:
        """Add what takes two files, and take out what has no meaning at the root."""
        if self._v1_cpu is not None:
            self._add_v1_limit(stats, directory(self._v1_cpu, path))
        return stats if path != "/" else {k: v for k, v in stats.items() if _at_root(k)}

    def _add_v1_limit(self, stats: Stats, where: str) -> None:
        if ("cfs_periods",) not in stats:  # this cgroup lacks the controller
            return
        quota = self._parsed(f"{where}/{_QUOTA}", int)
        if quota is None or quota < 0:
            return
        if period := self._parsed(f"{where}/{_PERIOD}", int):
            stats["cpu_limit",] = quota / period

    def _parsed(
        self, path: str, parse: Callable[[str], _Parsed], *, keep: bool = True
    ) -> _Parsed | None:
        try:
            return self._files.parsed(path, parse, keep=keep)
        except FileNotFoundError:
            return None  # this cgroup lacks the controller, or has just gone
        except (OSError, ValueError, KeyError) as exc:
            if not (isinstance(exc, OSError) and exc.errno in _ABSENT):
                self.read_errors += 1
            return None

    def _forget(self, gone: Iterable[str]) -> None:
        for path in gone:
            for name, _ in self._known.pop(path).fast:
                self._files.forget(name)
            if self._v1_cpu is not None:
                for name in (_QUOTA, _PERIOD):
                    self._files.forget(f"{directory(self._v1_cpu, path)}/{name}")


def _at_root(key: Key) -> bool:
    return key[0] != "stalled_s" or defined_at_root(key[1], key[2])


def _tables(hierarchies: Hierarchies) -> Iterator[tuple[Hierarchy, tuple[CgroupFile, ...]]]:
    """Yield each tree with what is read in it: a controller's files where it is mounted, pressure from v2."""
    if (unified := hierarchies.v2) is not None:
        here = [V2_FILES[name] for name in V2_FILES if hierarchies.v1(name) is None]
        yield unified, (*(file for files in here for file in files), *PRESSURE_FILES)
    for controller, files in V1_FILES.items():
        if (tree := hierarchies.v1(controller)) is not None:
            yield tree, files
