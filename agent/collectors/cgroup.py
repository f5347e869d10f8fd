"""CPU, CFS throttling, memory and pressure of every cgroup, in v1, v2 and hybrid layouts."""

from collections.abc import Iterator
from typing import ClassVar

from agent.collectors.base import CollectorContext, NoData
from agent.host.cgroups import CgroupReading, CgroupTree, Stat
from agent.host.containers import identify
from agent.host.files import KernelFiles
from agent.host.hierarchies import discover
from agent.telemetry.keys import CGROUP, CONTAINER_ID, PIPE, PSI_RESOURCE, PSI_STALL, REASON
from agent.telemetry.model import Attributes, Sample

_METRIC_OF: dict[Stat, str] = {
    "cpu_time_s": "container.cpu.time",
    "cfs_periods": "tailcause.cgroup.cpu.cfs.periods",
    "cfs_throttled_periods": "tailcause.cgroup.cpu.cfs.throttled_periods",
    "cfs_throttled_s": "tailcause.cgroup.cpu.cfs.throttled_time",
    "cpu_limit": "tailcause.cgroup.cpu.limit",
    "memory_usage_bytes": "container.memory.usage",
    "memory_limit_bytes": "tailcause.cgroup.memory.limit",
    "oom_kills": "tailcause.cgroup.memory.oom_kills",
}
_PSI_METRIC = "tailcause.cgroup.psi.time"
_DROPPED = "tailcause.pipe.dropped"
_PIPE_NAME = "cgroup"
_REMEDY = "mount cgroup2 on /sys/fs/cgroup, or give --path.cgroup and --path.procfs"


class CgroupCollector:
    """Reads all cgroups; what is left out for the bounds or cannot be read is counted."""

    METRICS: ClassVar[tuple[str, ...]] = (*_METRIC_OF.values(), _PSI_METRIC, _DROPPED)

    def __init__(self, context: CollectorContext) -> None:
        self._context = context
        self._tree: CgroupTree | None = None
        self._start_unix_ns = context.now_unix_ns()

    def collect(self) -> list[Sample]:
        """Return the numbers of every cgroup that has some."""
        if self._tree is None:
            self._tree = self._open()
        samples = [s for reading in self._tree.read_all() for s in self._of(reading)]
        samples.extend(self._losses(self._tree))
        return samples

    def _open(self) -> CgroupTree:
        try:
            hierarchies = discover(self._context.paths)
        except FileNotFoundError as exc:
            mountinfo = self._context.paths.mountinfo
            raise NoData(f"{mountinfo} does not exist", remedy=_REMEDY) from exc
        if not hierarchies.trees:
            raise NoData("no cgroup hierarchy is mounted", remedy=_REMEDY)
        files = KernelFiles(self._context.max_open_files)
        return CgroupTree(hierarchies, files, self._context.walk_limits)

    def _of(self, reading: CgroupReading) -> Iterator[Sample]:
        now = self._context.now_unix_ns()
        container_id = identify(reading.path).container_id
        attributes: Attributes = {CGROUP: reading.path}
        if container_id:
            attributes = {CGROUP: reading.path, CONTAINER_ID: container_id}
        for stat, value in reading.stats.items():
            yield Sample(_METRIC_OF[stat], value, now, attributes)
        for (resource, stall), seconds in reading.stalled_s.items():
            keys = {**attributes, PSI_RESOURCE: resource, PSI_STALL: stall}
            yield Sample(_PSI_METRIC, seconds, now, keys)

    def _losses(self, tree: CgroupTree) -> Iterator[Sample]:
        now = self._context.now_unix_ns()
        for reason, count in (("too_many", tree.overflow), ("unreadable", tree.read_errors)):
            if count:
                keys = {PIPE: _PIPE_NAME, REASON: reason}
                yield Sample(_DROPPED, count, now, keys, self._start_unix_ns)
