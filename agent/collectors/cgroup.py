"""CPU, CFS throttling, memory, I/O, threads and pressure of every cgroup, in v1, v2 and hybrid layouts."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from agent.collectors import procfs
from agent.collectors.base import CollectorContext, NoData
from agent.host.age import oldest_start_ticks
from agent.host.cgroup_files import Key, Stats
from agent.host.cgroups import CgroupReading, CgroupTree
from agent.host.containers import identify
from agent.host.devices import DiskNames
from agent.host.files import KernelFiles
from agent.host.hierarchies import Hierarchies, discover
from agent.telemetry.keys import (
    CGROUP,
    CONTAINER_ID,
    CPU_MODE,
    DEVICE,
    DISK_OPERATION,
    FAULT_TYPE,
    MEMORY_EVENT,
    PAGE_TYPE,
    PIPE,
    PSI_RESOURCE,
    PSI_STALL,
    REASON,
)
from agent.telemetry.model import Attributes, Sample

_METRIC_OF: Mapping[str, tuple[str, ...]] = {
    "cpu_time_s": ("container.cpu.time",),
    "cpu_mode_s": ("tailcause.cgroup.cpu.mode_time", CPU_MODE),
    "cpu_weight": ("tailcause.cgroup.cpu.weight",),
    "cpu_limit": ("tailcause.cgroup.cpu.limit",),
    "cfs_periods": ("tailcause.cgroup.cpu.cfs.periods",),
    "cfs_throttled_periods": ("tailcause.cgroup.cpu.cfs.throttled_periods",),
    "cfs_throttled_s": ("tailcause.cgroup.cpu.cfs.throttled_time",),
    "memory_usage_bytes": ("container.memory.usage",),
    "memory_rss_bytes": ("container.memory.rss",),
    "memory_working_set_bytes": ("container.memory.working_set",),
    "memory_cache_bytes": ("tailcause.cgroup.memory.cache",),
    "memory_swap_bytes": ("tailcause.cgroup.memory.swap",),
    "memory_limit_bytes": ("tailcause.cgroup.memory.limit",),
    "memory_high_bytes": ("tailcause.cgroup.memory.high",),
    "oom_kills": ("tailcause.cgroup.memory.oom_kills",),
    "memory_events": ("tailcause.cgroup.memory.events", MEMORY_EVENT),
    "refaults": ("tailcause.cgroup.memory.refaults", PAGE_TYPE),
    "pages_scanned": ("tailcause.cgroup.memory.scanned",),
    "pages_reclaimed": ("tailcause.cgroup.memory.reclaimed",),
    "faults": ("container.paging.faults", FAULT_TYPE),
    "io_bytes": ("container.disk.io", DEVICE, DISK_OPERATION),
    "io_operations": ("tailcause.cgroup.io.operations", DEVICE, DISK_OPERATION),
    "io_throttled_s": ("tailcause.cgroup.io.throttled_time", DEVICE),
    "threads": ("tailcause.cgroup.threads",),
    "threads_limit": ("tailcause.cgroup.threads.limit",),
    "threads_refused": ("tailcause.cgroup.threads.refused",),
    "uptime_s": ("container.uptime",),
    "stalled_s": ("tailcause.cgroup.psi.time", PSI_RESOURCE, PSI_STALL),
}
"""By the name of a number its metric, and the attributes that the rest of its key stands for."""
_DROPPED = "tailcause.pipe.dropped"
_PIPE_NAME = "cgroup"
_REMEDY = "mount cgroup2 on /sys/fs/cgroup, or give --path.cgroup and --path.procfs"


@dataclass
class _Known:
    """A cgroup's attributes, its series as they were named before, and its samples of last time."""

    attributes: Attributes
    series: dict[Key, tuple[str, Attributes] | None] = field(default_factory=dict)
    slow: list[Sample] = field(default_factory=list)
    fast: list[Sample] = field(default_factory=list)


class CgroupCollector:
    """Reads all cgroups; what is left out for the bounds or cannot be read is counted.

    Samples of slow files stay, with the time at which they were read, until their turn comes again; those of an idle
    cgroup until something runs in it, or for ten rounds or seconds.
    """

    METRICS: ClassVar[tuple[str, ...]] = (
        *(metric for metric, *_ in _METRIC_OF.values()),
        _DROPPED,
    )

    def __init__(self, context: CollectorContext) -> None:
        self._context = context
        self._hierarchies = Hierarchies(())
        self._tree: CgroupTree | None = None
        self._known: dict[str, _Known] = {}
        self._disk_name = DiskNames(context.paths)
        self._boot_unix_ns = 0
        self._start_unix_ns = context.now_unix_ns()

    def collect(self) -> list[Sample]:
        """Return the numbers of every cgroup that has some."""
        if self._tree is None:
            self._tree = self._open()
        known: dict[str, _Known] = {}
        samples: list[Sample] = []
        for reading in self._tree.read_all():
            one = known[reading.path] = self._known.get(reading.path) or self._new(reading.path)
            samples += self._fast(one, reading)
            if reading.slow is not None:
                one.slow = list(self._of(one, reading.slow | self._uptime(one.attributes)))
            samples += one.slow
        self._known = known
        samples.extend(self._losses(self._tree))
        return samples

    def close(self) -> None:
        """Close the files; a later collection opens them again."""
        self._tree = None

    def _fast(self, known: _Known, reading: CgroupReading) -> list[Sample]:
        """Return the samples of a reading; of an idle cgroup those of before, but for its CPU time."""
        read = list(self._of(known, reading.stats))
        if not reading.idle:
            known.fast = read
            return read
        fresh = {sample.metric: sample for sample in read}
        known.fast = [fresh.get(sample.metric, sample) for sample in known.fast]
        return known.fast

    def _open(self) -> CgroupTree:
        try:
            self._hierarchies = discover(self._context.paths)
        except FileNotFoundError as exc:
            mountinfo = self._context.paths.mountinfo
            raise NoData(f"{mountinfo} does not exist", remedy=_REMEDY) from exc
        if not self._hierarchies.trees:
            raise NoData("no cgroup hierarchy is mounted", remedy=_REMEDY)
        self._boot_unix_ns = procfs.boot_unix_ns(self._context.paths)
        files = KernelFiles(self._context.max_open_files)
        wanted = self._context.selection.cgroup
        return CgroupTree(self._hierarchies, files, self._context.walk_limits, wanted)

    def _new(self, path: str) -> _Known:
        container_id = identify(path).container_id
        return _Known({CGROUP: path} | ({CONTAINER_ID: container_id} if container_id else {}))

    def _of(self, known: _Known, stats: Stats) -> Iterator[Sample]:
        now = self._context.now_unix_ns()
        for key, value in stats.items():
            if key not in known.series:
                known.series[key] = self._named(known.attributes, key)
            if (series := known.series[key]) is not None:
                yield Sample(series[0], value, now, series[1])

    def _named(self, attributes: Attributes, key: Key) -> tuple[str, Attributes] | None:
        """Return metric and attributes of a number, None for a disk that is left out."""
        metric, *names = _METRIC_OF[key[0]]
        if not names:
            return metric, attributes  # shared: half of all series have no other attributes
        values = list(key[1:])
        if DEVICE in names:
            values[0] = self._disk_name(values[0])
            if not self._context.selection.disk(values[0]):
                return None
        return metric, {**attributes, **dict(zip(names, values, strict=True))}

    def _uptime(self, attributes: Attributes) -> Stats:
        """Return the age of a container; other cgroups outlive what runs in them."""
        if CONTAINER_ID not in attributes or not self._boot_unix_ns:
            return {}
        path = str(attributes[CGROUP])
        ticks = oldest_start_ticks(self._context.paths, self._hierarchies.trees, path)
        if ticks is None:
            return {}
        since_boot_s = (self._context.now_unix_ns() - self._boot_unix_ns) / 1e9
        return {("uptime_s",): max(0.0, since_boot_s - ticks / os.sysconf("SC_CLK_TCK"))}

    def _losses(self, tree: CgroupTree) -> Iterator[Sample]:
        now = self._context.now_unix_ns()
        for reason, count in (("too_many", tree.overflow), ("unreadable", tree.read_errors)):
            if count:
                keys = {PIPE: _PIPE_NAME, REASON: reason}
                yield Sample(_DROPPED, count, now, keys, self._start_unix_ns)
