"""The files of a cgroup that are read, and what their text means, by controller and version.

A number that a file does not hold is left out. Source: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst,
cgroup-v1/blkio-controller.rst, cgroup-v1/cpuacct.rst and scheduler/sched-bwc.rst of the kernel.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.host.psi import RESOURCES, parse_pressure

Key = tuple[str, ...]
"""The name of a number, and what tells it from others of that name, such as a device and a direction."""
Stats = dict[Key, float]

_NS_PER_S = 1e9
_US_PER_S = 1e6
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_V1_UNLIMITED_BYTES = 1 << 62  # v1 writes the largest multiple of a page below 2^63
_V1_DEFAULT_SHARES, _V2_DEFAULT_WEIGHT = 1024, 100


@dataclass(frozen=True)
class CgroupFile:
    """One file of a controller; `slow` ones are not read in every round."""

    name: str
    parse: Callable[[str], Stats]
    slow: bool = False
    instead: str = ""
    """What an older kernel calls it."""


def _number(key: str, scale: float = 1) -> Callable[[str], Stats]:
    """Return a parser of a file that holds one number; `max` and v1's huge number are no limit."""

    def parse(text: str) -> Stats:
        if text.strip() == "max" or (value := int(text)) >= _V1_UNLIMITED_BYTES:
            return {}
        return {(key,): value * scale}

    return parse


def _picked(wanted: Mapping[str, Key], scale: float = 1) -> Callable[[str], Stats]:
    """Return a parser of `name number` lines that looks at each line once."""

    def parse(text: str) -> Stats:
        stats: Stats = {}
        for line in text.splitlines():
            name, _, number = line.partition(" ")
            if (key := wanted.get(name)) is not None:
                stats[key] = int(number) * scale
        return stats

    return parse


def _cpu_stat_v1(text: str) -> Stats:
    return _throttling(_flat_keyed(text), "throttled_time", _NS_PER_S)


def _cpu_stat_v2(text: str) -> Stats:
    values = _flat_keyed(text)
    stats = _throttling(values, "throttled_usec", _US_PER_S)
    stats["cpu_time_s",] = values["usage_usec"] / _US_PER_S
    for mode in ("user", "system"):
        if f"{mode}_usec" in values:
            stats["cpu_mode_s", mode] = values[f"{mode}_usec"] / _US_PER_S
    return stats


def _throttling(values: dict[str, int], time_key: str, per_s: float) -> Stats:
    if "nr_periods" not in values or time_key not in values:
        return {}  # v2 without the cpu controller here
    return {
        ("cfs_periods",): values["nr_periods"],
        ("cfs_throttled_periods",): values["nr_throttled"],
        ("cfs_throttled_s",): values[time_key] / per_s,
    }


def _cpu_max(text: str) -> Stats:
    quota, period = text.split()
    return {} if quota == "max" else {("cpu_limit",): int(quota) / int(period)}


def _memory_stat(wanted: Mapping[str, Key]) -> Callable[[str], Stats]:
    """Return a parser of memory.stat; the kernel counts major faults among all faults."""
    pick = _picked(wanted)

    def parse(text: str) -> Stats:
        stats = pick(text)
        faults, major = stats.pop(("faults", "all"), None), stats.get(("faults", "major"))
        if faults is not None and major is not None:
            stats["faults", "minor"] = max(0.0, faults - major)
        return stats

    return parse


def _io_stat(text: str) -> Stats:
    """Read `8:0 rbytes=1 wbytes=2 rios=3 wios=4 …`; `cost.wait` is there where io.cost is on."""
    stats: Stats = {}
    for line in text.splitlines():
        device, *pairs = line.split()
        for pair in pairs:
            name, _, number = pair.partition("=")
            if name in _IO_STAT:
                what, *direction = _IO_STAT[name]
                stats[what, device, *direction] = int(number)
            elif name == "cost.wait":
                stats["io_throttled_s", device] = int(number) / _US_PER_S
    return stats


def _blkio(what: str) -> Callable[[str], Stats]:
    """Return a parser of `8:0 Read 1`, and so on by direction and in total.

    A device with nothing but zeros is left out: many kernels since 6.1 count only where a limit is set.
    """

    def parse(text: str) -> Stats:
        rows = [row for line in text.splitlines() if len(row := line.split()) == 3]
        counted = {row[0] for row in rows if row[2] != "0"}
        return {
            (what, row[0], row[1].lower()): int(row[2])
            for row in rows
            if row[0] in counted and row[1] in {"Read", "Write"}
        }

    return parse


def _pressure(resource: str) -> Callable[[str], Stats]:
    def parse(text: str) -> Stats:
        return {("stalled_s", resource, stall): s for stall, s in parse_pressure(text).items()}

    return parse


def _flat_keyed(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


_IO_STAT: Mapping[str, Key] = {
    "rbytes": ("io_bytes", "read"),
    "wbytes": ("io_bytes", "write"),
    "rios": ("io_operations", "read"),
    "wios": ("io_operations", "write"),
}
_EVENTS: Mapping[str, Key] = {
    "oom_kill": ("oom_kills",),
    **{name: ("memory_events", name) for name in ("low", "high", "max", "oom", "oom_group_kill")},
}
_V1_MEMORY: Mapping[str, Key] = {  # total_: with all cgroups below, like every number of v2
    "total_rss": ("memory_rss_bytes",),
    "total_cache": ("memory_cache_bytes",),
    "total_swap": ("memory_swap_bytes",),
    "total_inactive_file": ("memory_inactive_file_bytes",),
    "total_pgfault": ("faults", "all"),
    "total_pgmajfault": ("faults", "major"),
    "total_workingset_refault": ("refaults", "file"),
    "total_workingset_refault_anon": ("refaults", "anon"),
    "total_workingset_refault_file": ("refaults", "file"),
}
_V2_MEMORY: Mapping[str, Key] = {
    "anon": ("memory_rss_bytes",),
    "file": ("memory_cache_bytes",),
    "inactive_file": ("memory_inactive_file_bytes",),
    "pgfault": ("faults", "all"),
    "pgmajfault": ("faults", "major"),
    "workingset_refault": ("refaults", "file"),  # before 5.9, when only files had it
    "workingset_refault_anon": ("refaults", "anon"),
    "workingset_refault_file": ("refaults", "file"),
    "pgscan": ("pages_scanned",),
    "pgsteal": ("pages_reclaimed",),
}
_PIDS = (
    CgroupFile("pids.current", _number("threads"), slow=True),
    CgroupFile("pids.max", _number("threads_limit"), slow=True),
    CgroupFile("pids.events", _picked({"max": ("threads_refused",)}), slow=True),
)

V1_FILES: Mapping[str, tuple[CgroupFile, ...]] = {
    "cpu": (
        CgroupFile("cpu.stat", _cpu_stat_v1),
        CgroupFile(
            "cpu.shares",
            _number("cpu_weight", _V2_DEFAULT_WEIGHT / _V1_DEFAULT_SHARES),
            slow=True,
        ),
    ),
    "cpuacct": (
        CgroupFile("cpuacct.usage", _number("cpu_time_s", 1 / _NS_PER_S)),
        CgroupFile(
            "cpuacct.stat",
            _picked({mode: ("cpu_mode_s", mode) for mode in ("user", "system")}, 1 / _TICKS_PER_S),
            slow=True,
        ),
    ),
    "memory": (
        CgroupFile("memory.usage_in_bytes", _number("memory_usage_bytes")),
        CgroupFile("memory.oom_control", _picked({"oom_kill": ("oom_kills",)})),
        CgroupFile("memory.limit_in_bytes", _number("memory_limit_bytes"), slow=True),
        CgroupFile("memory.stat", _memory_stat(_V1_MEMORY), slow=True),
        CgroupFile("memory.failcnt", lambda text: {("memory_events", "max"): int(text)}, slow=True),
    ),
    "blkio": (
        CgroupFile(
            "blkio.throttle.io_service_bytes_recursive",
            _blkio("io_bytes"),
            slow=True,
            instead="blkio.throttle.io_service_bytes",
        ),
        CgroupFile(
            "blkio.throttle.io_serviced_recursive",
            _blkio("io_operations"),
            slow=True,
            instead="blkio.throttle.io_serviced",
        ),
    ),
    "pids": _PIDS,
}
V2_FILES: Mapping[str, tuple[CgroupFile, ...]] = {
    "cpu": (
        CgroupFile("cpu.stat", _cpu_stat_v2),
        CgroupFile("cpu.max", _cpu_max),
        CgroupFile("cpu.weight", _number("cpu_weight"), slow=True),
    ),
    "memory": (
        CgroupFile("memory.current", _number("memory_usage_bytes")),
        CgroupFile("memory.events", _picked(_EVENTS)),
        CgroupFile("memory.max", _number("memory_limit_bytes"), slow=True),
        CgroupFile("memory.high", _number("memory_high_bytes"), slow=True),
        CgroupFile("memory.stat", _memory_stat(_V2_MEMORY), slow=True),
        CgroupFile("memory.swap.current", _number("memory_swap_bytes"), slow=True),
    ),
    "blkio": (CgroupFile("io.stat", _io_stat, slow=True),),
    "pids": _PIDS,
}
"""By the name that v1 gives the controller: one that is mounted in v1 is not read in v2."""
PRESSURE_FILES = tuple(CgroupFile(f"{name}.pressure", _pressure(name)) for name in RESOURCES)
