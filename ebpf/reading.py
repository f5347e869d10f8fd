"""What a probe hands over: cumulative numbers and histograms by label. The agent turns them into samples."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Histogram:
    """A cumulative histogram; slot i holds times from 2^(i-30) s to 2^(i-29) s."""

    slots: tuple[int, ...]
    sum_s: float

    @property
    def count(self) -> int:
        """Events in all slots."""
        return sum(self.slots)


@dataclass(frozen=True)
class Reading:
    """One series of one metric; a number is a cumulative counter."""

    metric: str
    labels: Labels
    value: float | Histogram


@dataclass(frozen=True)
class Readings:
    """One look at a probe: its series and what it could not count, by reason (cumulative)."""

    series: tuple[Reading, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    events: int = 0
    """How often its programs ran since they were attached; with the cost of a run, the cost of the probe."""
    left_out: int = 0
    """Series that are not among these because of a bound, added up over the readings."""
