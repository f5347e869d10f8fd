"""What the block I/O probe has counted, and what it has not seen."""

from ebpf.layout import FLIGHT
from ebpf.probes.blkio import Blkio
from ebpf.reading import Histogram, Readings
from ebpf.session import Session

METRICS = ("blkio.queue", "blkio.service")
_ISSUED = 2  # TC_FLIGHT_ISSUED


class AtMost:
    """Equals a count, or less by no more than the probe itself says that it has not seen.

    While programs are loaded or attached elsewhere on the machine, this kernel now and then runs no BPF program on a
    CPU for some milliseconds, of whoever it is. Left alone, nothing is unseen and the count is exact.
    """

    def __init__(self, count: int, unseen: int) -> None:
        self._count, self._unseen = count, unseen

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and 0 <= self._count - other <= self._unseen

    def __hash__(self) -> int:
        return hash(self._count)

    def __repr__(self) -> str:
        return f"{self._count} less up to {self._unseen} unseen"


def unseen_requests(session: Session) -> int:
    """Count requests whose end the probe has missed: those it knows of, and those that seem to be in flight."""
    dropped = session.read()["blkio"].dropped["events_lost"]
    probe = session.slots["blkio"].probe
    assert isinstance(probe, Blkio)
    assert probe._object is not None
    table = probe._object.map("in_flight")
    states = [flight[-1] for flight in FLIGHT.iterate(table.read_array(table.max_entries))]
    return dropped + states.count(_ISSUED)


def io_histogram(readings: Readings, metric: str, **labels: str) -> Histogram:
    """Add up the histograms that have these labels."""
    slots, sum_s = [0] * 40, 0.0
    for reading in readings.series:
        if reading.metric == metric and labels.items() <= reading.labels.items():
            assert isinstance(reading.value, Histogram)
            slots = [a + b for a, b in zip(slots, reading.value.slots, strict=True)]
            sum_s += reading.value.sum_s
    return Histogram(tuple(slots), sum_s)
