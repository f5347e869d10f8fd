"""What went through the host's network interfaces, and what was lost there.

Source: proc_net(5), `/proc/net/dev`; names of OpenTelemetry's system metrics.
"""

from collections.abc import Iterator
from typing import ClassVar

from agent.collectors import procfs
from agent.collectors.base import CollectorContext, NoData
from agent.telemetry.keys import INTERFACE, IO_DIRECTION, PIPE, REASON
from agent.telemetry.model import Sample

MAX_INTERFACES = 128
_DIRECTIONS = (("receive", 0), ("transmit", 8))  # and the first of their columns
_METRICS = (
    "system.network.io",
    "system.network.packet.count",
    "system.network.errors",
    "system.network.packet.dropped",
)
_COLUMNS = 16
_DROPPED = "tailcause.pipe.dropped"


class NetworkCollector:
    """Reads the counters of the interfaces that are not left out; past a bound they are counted."""

    METRICS: ClassVar[tuple[str, ...]] = (*_METRICS, _DROPPED)

    def __init__(self, context: CollectorContext) -> None:
        self._context = context
        self._start_unix_ns = context.now_unix_ns()
        self._overflow = 0

    def collect(self) -> list[Sample]:
        """Return the counters by interface and direction; raises `NoData` where there is none."""
        paths = self._context.paths
        text = procfs.read(paths, f"{paths.owner}/net/dev")
        rows = [row for line in text.splitlines()[2:] if (row := self._row(line))]
        if not rows:
            raise NoData("no network interface that is not left out", remedy="see network_exclude")
        self._overflow += max(0, len(rows) - MAX_INTERFACES)
        samples = [s for name, row in rows[:MAX_INTERFACES] for s in self._of(name, row)]
        if self._overflow:
            keys = {PIPE: "network", REASON: "too_many"}
            now = self._context.now_unix_ns()
            samples.append(Sample(_DROPPED, self._overflow, now, keys, self._start_unix_ns))
        return samples

    def _row(self, line: str) -> tuple[str, list[int]] | None:
        name, separator, numbers = line.partition(": ")
        if not separator:  # kernels of old wrote no blank
            name, _, numbers = line.partition(":")
        row = [int(number) for number in numbers.split()]
        name = name.strip()
        wanted = len(row) >= _COLUMNS and self._context.selection.interface(name)
        return (name, row) if wanted else None

    def _of(self, name: str, row: list[int]) -> Iterator[Sample]:
        now = self._context.now_unix_ns()
        for direction, first in _DIRECTIONS:
            keys = {INTERFACE: name, IO_DIRECTION: direction}
            for column, metric in enumerate(_METRICS, first):
                yield Sample(metric, row[column], now, keys)
