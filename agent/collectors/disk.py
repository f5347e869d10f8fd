"""What the host's disks did: bytes, requests, merges, time.

Source: Documentation/admin-guide/iostats.rst; names of OpenTelemetry's system metrics.
"""

from collections.abc import Iterator
from typing import ClassVar

from agent.collectors import procfs
from agent.collectors.base import CollectorContext, NoData
from agent.telemetry.keys import DEVICE, DISK_OPERATION, PIPE, REASON
from agent.telemetry.model import Sample

MAX_DISKS = 128
_SECTOR_BYTES = 512  # whatever the device's own sectors are
_MS_PER_S = 1e3
_DIRECTIONS = (("read", 3), ("write", 7))  # and the first of their four columns
_METRICS = (
    ("system.disk.operations", 1),
    ("system.disk.merged", 1),
    ("system.disk.io", _SECTOR_BYTES),
    ("system.disk.operation_time", 1 / _MS_PER_S),
)
_IO_TIME, _IO_TIME_COLUMN = "system.disk.io_time", 12
_DROPPED = "tailcause.pipe.dropped"


class DiskCollector:
    """Reads the counters of the disks that are not left out; past a bound they are counted."""

    METRICS: ClassVar[tuple[str, ...]] = (*(name for name, _ in _METRICS), _IO_TIME, _DROPPED)

    def __init__(self, context: CollectorContext) -> None:
        self._context = context
        self._boot_unix_ns: int | None = None
        self._start_unix_ns = context.now_unix_ns()
        self._overflow = 0

    def collect(self) -> list[Sample]:
        """Return the counters by disk and direction; raises `NoData` where there is no disk."""
        text = procfs.read(self._context.paths, "diskstats")
        if self._boot_unix_ns is None:
            self._boot_unix_ns = procfs.boot_unix_ns(self._context.paths)
        rows = [row for line in text.splitlines() if (row := self._row(line))]
        if not rows:
            raise NoData("this machine has no disk that is not left out", remedy="see disk_exclude")
        self._overflow += max(0, len(rows) - MAX_DISKS)
        samples = [s for row in rows[:MAX_DISKS] for s in self._of(row, self._boot_unix_ns)]
        if self._overflow:
            keys = {PIPE: "disk", REASON: "too_many"}
            now = self._context.now_unix_ns()
            samples.append(Sample(_DROPPED, self._overflow, now, keys, self._start_unix_ns))
        return samples

    def _row(self, line: str) -> list[str]:
        row = line.split()
        wanted = len(row) > _IO_TIME_COLUMN and self._context.selection.disk(row[2])
        return row if wanted else []

    def _of(self, row: list[str], start: int) -> Iterator[Sample]:
        now, device = self._context.now_unix_ns(), row[2]
        for direction, first in _DIRECTIONS:
            keys = {DEVICE: device, DISK_OPERATION: direction}
            for column, (metric, scale) in enumerate(_METRICS, first):
                yield Sample(metric, int(row[column]) * scale, now, keys, start)
        busy_s = int(row[_IO_TIME_COLUMN]) / _MS_PER_S
        yield Sample(_IO_TIME, busy_s, now, {DEVICE: device}, start)
