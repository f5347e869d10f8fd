"""The bound on the series of one metric: those above it become one series, which says so.

Source: OpenTelemetry specification, Metrics SDK, "Cardinality limits" (the overflow attribute).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.telemetry.keys import METRIC, OVERFLOW
from agent.telemetry.metric import Kind
from agent.telemetry.model import AttributeValue, Sample
from agent.telemetry.names import BY_NAME

MAX_SERIES = 2000
_FOLDED = "tailcause.series.folded"

_Key = frozenset[tuple[str, AttributeValue]]


@dataclass
class _Crowd:
    """One metric that has more series than it may: who has a series, and what the others have added up to."""

    admitted: set[_Key] = field(default_factory=set)
    before: dict[_Key, float] = field(default_factory=dict)
    total: float = 0.0
    start_unix_ns: int = 0


class Cardinality:
    """Bounds the series of every metric; those that came first keep theirs for as long as they last.

    The overflow series is, of counters, what the others have added since the metric was over its bound; of
    levels their sum, and of gauges the largest. Histograms of the others are left out. It counts against
    the bound.
    """

    def __init__(self, max_series: int = MAX_SERIES) -> None:
        self._max_series = max_series
        self._crowds: dict[str, _Crowd] = {}

    def bound(self, samples: list[Sample]) -> list[Sample]:
        """Return the samples with no more series of a metric than may be, and how many were folded."""
        counts = Counter(sample.metric for sample in samples)
        over = {metric for metric, count in counts.items() if count > self._max_series}
        self._crowds = {metric: self._crowds.get(metric, _Crowd()) for metric in over}
        if not over:
            return samples
        groups: dict[str, list[Sample]] = {metric: [] for metric in over}
        kept: list[Sample] = []
        for sample in samples:
            groups.get(sample.metric, kept).append(sample)
        for metric, group in groups.items():
            kept += self._fold(metric, group)
        return kept

    def _fold(self, metric: str, group: list[Sample]) -> list[Sample]:
        crowd = self._crowds[metric]
        keyed = {frozenset(sample.attributes.items()): sample for sample in group}
        crowd.admitted &= keyed.keys()
        for key in keyed:
            if len(crowd.admitted) >= self._max_series - 1:
                break
            crowd.admitted.add(key)
        others = {key: sample for key, sample in keyed.items() if key not in crowd.admitted}
        kept = [sample for key, sample in keyed.items() if key in crowd.admitted]
        return [*kept, *_overflow(metric, crowd, others)]


def _overflow(metric: str, crowd: _Crowd, others: Mapping[_Key, Sample]) -> list[Sample]:
    """Return the series of all others, and how many they are."""
    if not others:
        return []
    now = max(sample.time_unix_ns for sample in others.values())
    folded = Sample(_FOLDED, len(others), now, {METRIC: metric})
    kind = BY_NAME[metric].kind
    if kind is Kind.HISTOGRAM:
        return [folded]
    values = {key: sample.value for key, sample in others.items()}
    if kind is Kind.COUNTER:
        crowd.start_unix_ns = crowd.start_unix_ns or now
        crowd.total += _added(crowd.before, values)
        crowd.before = values
        value = crowd.total
    else:
        value = sum(values.values()) if kind is Kind.UP_DOWN else max(values.values())
    return [Sample(metric, value, now, {OVERFLOW: True}, crowd.start_unix_ns), folded]


def _added(before: Mapping[_Key, float], values: Mapping[_Key, float]) -> float:
    """Return by how much counters have grown; one that is new, or began again, counts from there."""
    return sum(max(0.0, value - before.get(key, value)) for key, value in values.items())
