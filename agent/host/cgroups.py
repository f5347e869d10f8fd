"""The cgroups of a host and their numbers, v1 and v2 merged for one path."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from agent.host.files import KernelFiles
from agent.host.hierarchies import Hierarchies, Hierarchy
from agent.host.psi import RESOURCES, defined_at_root, parse_pressure

Stat = Literal[
    "cpu_time_s",
    "cfs_periods",
    "cfs_throttled_periods",
    "cfs_throttled_s",
    "cpu_limit",
    "memory_usage_bytes",
    "memory_limit_bytes",
    "oom_kills",
]

_NS_PER_S = 1e9
_US_PER_S = 1e6
_V1_UNLIMITED_BYTES = 1 << 62  # v1 writes the largest multiple of a page below 2^63


@dataclass(frozen=True)
class WalkLimits:
    """Bounds on how much of the trees is looked at."""

    depth: int = 16
    cgroups: int = 1000


@dataclass(frozen=True)
class CgroupReading:
    """The numbers of one cgroup; what the machine does not have is absent, never 0."""

    path: str
    stats: Mapping[Stat, float]
    stalled_s: Mapping[tuple[str, str], float]
    """Stalled seconds by (resource, `some` or `full`)."""


@dataclass(frozen=True)
class _File:
    name: str
    parse: Callable[[str], dict[Stat, float]]


def _cpu_stat_v1(text: str) -> dict[Stat, float]:
    return _throttling(_flat_keyed(text), "throttled_time", _NS_PER_S)


def _cpu_stat_v2(text: str) -> dict[Stat, float]:
    values = _flat_keyed(text)
    stats = _throttling(values, "throttled_usec", _US_PER_S)
    stats["cpu_time_s"] = values["usage_usec"] / _US_PER_S
    return stats


def _throttling(values: dict[str, int], time_key: str, per_s: float) -> dict[Stat, float]:
    if "nr_periods" not in values or time_key not in values:
        return {}  # v2 without the cpu controller here
    return {
        "cfs_periods": values["nr_periods"],
        "cfs_throttled_periods": values["nr_throttled"],
        "cfs_throttled_s": values[time_key] / per_s,
    }


def _cpuacct_usage(text: str) -> dict[Stat, float]:
    return {"cpu_time_s": int(text) / _NS_PER_S}


def _cpu_max(text: str) -> dict[Stat, float]:
    quota, period = text.split()
    return {} if quota == "max" else {"cpu_limit": int(quota) / int(period)}


def _memory_usage(text: str) -> dict[Stat, float]:
    return {"memory_usage_bytes": int(text)}


def _memory_limit(text: str) -> dict[Stat, float]:
    if text.strip() == "max" or int(text) >= _V1_UNLIMITED_BYTES:
        return {}
    return {"memory_limit_bytes": int(text)}


def _oom_kills(text: str) -> dict[Stat, float]:
    values = _flat_keyed(text)
    return {"oom_kills": values["oom_kill"]} if "oom_kill" in values else {}


def _flat_keyed(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


_V1_FILES: dict[str, tuple[_File, ...]] = {
    "cpu": (_File("cpu.stat", _cpu_stat_v1),),
    "cpuacct": (_File("cpuacct.usage", _cpuacct_usage),),
    "memory": (
        _File("memory.usage_in_bytes", _memory_usage),
        _File("memory.limit_in_bytes", _memory_limit),
        _File("memory.oom_control", _oom_kills),
    ),
}
_V2_FILES: dict[str, tuple[_File, ...]] = {
    "cpu": (_File("cpu.stat", _cpu_stat_v2), _File("cpu.max", _cpu_max)),
    "memory": (
        _File("memory.current", _memory_usage),
        _File("memory.max", _memory_limit),
        _File("memory.events", _oom_kills),
    ),
}
_QUOTA, _PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"
_ALL_NAMES = (
    *(file.name for table in (_V1_FILES, _V2_FILES) for files in table.values() for file in files),
    *(_QUOTA, _PERIOD),
    *(f"{resource}.pressure" for resource in RESOURCES),
)
_Parsed = TypeVar("_Parsed")


class CgroupTree:
    """Walks the cgroups of all hierarchies and reads them; one instance per thread."""

    def __init__(
        self, hierarchies: Hierarchies, files: KernelFiles, limits: WalkLimits | None = None
    ) -> None:
        self._hierarchies = hierarchies
        self._files = files
        self._limits = limits or WalkLimits()
        self._v1 = [(c, tree) for c in _V1_FILES if (tree := hierarchies.v1(c)) is not None]
        self._known: set[str] = set()
        self.overflow = 0
        """Cgroups and subtrees left out so far because of the limits."""
        self.read_errors = 0
        """Files so far that were there but could not be read or understood."""

    def read_all(self) -> Iterator[CgroupReading]:
        """Yield every cgroup with at least one number, shallow ones first."""
        paths = self._walk()
        for gone in self._known.difference(paths):
            for tree in self._trees():
                self._forget(_directory(tree, gone))
        self._known = set(paths)
        for path in paths:
            reading = self.read(path)
            if reading.stats or reading.stalled_s:
                yield reading

    def _trees(self) -> list[Hierarchy]:
        trees = [tree for _, tree in self._v1]
        if self._hierarchies.v2 is not None:
            trees.append(self._hierarchies.v2)
        return list(dict.fromkeys(trees))

    def _walk(self) -> list[str]:
        """Return the paths below the mounts, each once, of all trees breadth first."""
        found: dict[str, None] = {}
        queue = deque((tree, "/", 0) for tree in self._trees())
        while queue:
            tree, path, depth = queue.popleft()
            if path not in found and len(found) >= self._limits.cgroups:
                self.overflow += 1
                continue
            found[path] = None
            children = _children(_directory(tree, path))
            if depth >= self._limits.depth:
                self.overflow += len(children)
                continue
            queue.extend((tree, os.path.join(path, name), depth + 1) for name in children)  # noqa: PTH118  hot
        return list(found)

    def read(self, path: str) -> CgroupReading:
        """Read one cgroup by its path below the mounts."""
        stats: dict[Stat, float] = {}
        if self._hierarchies.v2 is not None:
            stats |= self._read_v2(self._hierarchies.v2, path)
        for controller, tree in self._v1:
            stats |= self._read_files(_directory(tree, path), _V1_FILES[controller])
            if controller == "cpu":
                stats |= self._v1_cpu_limit(_directory(tree, path))
        return CgroupReading(path, stats, self._read_psi(path))

    def _read_v2(self, tree: Hierarchy, path: str) -> dict[Stat, float]:
        directory = _directory(tree, path)
        stats: dict[Stat, float] = {}
        for controller, files in _V2_FILES.items():
            if self._hierarchies.v1(controller) is None:
                stats |= self._read_files(directory, files)
        return stats

    def _read_files(self, directory: str, files: tuple[_File, ...]) -> dict[Stat, float]:
        stats: dict[Stat, float] = {}
        for file in files:
            stats |= self._read(f"{directory}/{file.name}", file.parse) or {}
        return stats

    def _v1_cpu_limit(self, directory: str) -> dict[Stat, float]:
        quota = self._read(f"{directory}/{_QUOTA}", int)
        period = self._read(f"{directory}/{_PERIOD}", int)
        if quota is None or quota < 0 or not period:
            return {}
        return {"cpu_limit": quota / period}

    def _read_psi(self, path: str) -> dict[tuple[str, str], float]:
        tree = self._hierarchies.v2
        if tree is None:
            return {}
        stalled_s: dict[tuple[str, str], float] = {}
        for resource in RESOURCES:
            by_stall = self._read(f"{_directory(tree, path)}/{resource}.pressure", parse_pressure)
            for stall, seconds in (by_stall or {}).items():
                if path != "/" or defined_at_root(resource, stall):
                    stalled_s[resource, stall] = seconds
        return stalled_s

    def _read(self, path: str, parse: Callable[[str], _Parsed]) -> _Parsed | None:
        try:
            return parse(self._files.read(path))
        except FileNotFoundError:
            return None  # this cgroup lacks the controller, or has just gone
        except (OSError, ValueError, KeyError):
            self.read_errors += 1
            return None

    def _forget(self, directory: str) -> None:
        for name in _ALL_NAMES:
            self._files.forget(f"{directory}/{name}")


def _directory(tree: Hierarchy, path: str) -> str:
    return f"{tree.mount}{path}".rstrip("/")


def _children(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
    except OSError:
        return []  # gone since its parent was listed
