"""Reads metric points as time series: increases of counters between two instants, means of gauges."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.telemetry.model import Point

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Track:
    """One series of a metric: ascending times (s since the epoch) and values."""

    times_s: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def step_s(self) -> float:
        """Mean distance between values, 0 with fewer than two."""
        if len(self.times_s) < 2:
            return 0.0
        return (self.times_s[-1] - self.times_s[0]) / (len(self.times_s) - 1)

    def at(self, time_s: float) -> float | None:
        """Value at an instant, by linear interpolation; None outside of what was observed."""
        if not self.times_s or not self.times_s[0] <= time_s <= self.times_s[-1]:
            return None
        right = bisect_left(self.times_s, time_s)
        if self.times_s[right] == time_s:
            return self.values[right]
        t0, t1 = self.times_s[right - 1], self.times_s[right]
        v0, v1 = self.values[right - 1], self.values[right]
        return v0 + (v1 - v0) * (time_s - t0) / (t1 - t0)

    def increase(self, start_s: float, end_s: float) -> float | None:
        """Growth of a counter over an interval; None when less than half of it was observed.

        The interval is cut to what was observed and the growth is not extrapolated.
        """
        if not self.times_s:
            return None
        low, high = max(start_s, self.times_s[0]), min(end_s, self.times_s[-1])
        if high - low < (end_s - start_s) / 2 or high <= low:
            return None
        first, last = self.at(low), self.at(high)
        return None if first is None or last is None else last - first

    def rate(self, start_s: float, end_s: float) -> float | None:
        """Growth per second over the part of an interval that was observed."""
        grown = self.increase(start_s, end_s)
        if grown is None:
            return None
        return grown / (min(end_s, self.times_s[-1]) - max(start_s, self.times_s[0]))

    def mean(self, start_s: float, end_s: float) -> float | None:
        """Mean of a gauge's values within an interval; None without any."""
        inside = self.values[bisect_left(self.times_s, start_s) : bisect_right(self.times_s, end_s)]
        return sum(inside) / len(inside) if inside else None


class Counters:
    """All points of a snapshot, looked up by metric name and attributes (of point or resource)."""

    def __init__(self, points: Iterable[Point]) -> None:
        series: dict[str, dict[Labels, list[tuple[float, float]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        cumulative: dict[str, bool] = {}
        for point in points:
            series[point.metric][_labels(point)].append((point.time_unix_ns / 1e9, point.value))
            cumulative[point.metric] = point.cumulative
        self._tracks = {
            metric: [
                (dict(labels), _track(values, cumulative[metric]))
                for labels, values in by_labels.items()
            ]
            for metric, by_labels in series.items()
        }

    def find(
        self, metric: str, wanted: Mapping[str, str] | None = None
    ) -> list[tuple[dict[str, str], Track]]:
        """Return labels and track of every series of `metric` that has all `wanted` labels."""
        return [
            (labels, track)
            for labels, track in self._tracks.get(metric, [])
            if all(labels.get(key) == value for key, value in (wanted or {}).items())
        ]

    def one(self, metric: str, wanted: Mapping[str, str]) -> Track | None:
        """Return the only series that matches; None when there is none or it is ambiguous."""
        found = self.find(metric, wanted)
        return found[0][1] if len(found) == 1 else None


def _labels(point: Point) -> Labels:
    merged = {**point.resource, **point.attributes}
    return tuple(sorted((key, str(value)) for key, value in merged.items()))


def _track(values: list[tuple[float, float]], cumulative: bool) -> Track:
    """Sort, drop repeated instants and, for counters, carry on over resets."""
    ordered = dict(sorted(values))
    if not cumulative:
        return Track(tuple(ordered), tuple(ordered.values()))
    carried, offset, last = [], 0.0, None
    for value in ordered.values():
        if last is not None and value < last:
            offset += last
        carried.append(value + offset)
        last = value
    return Track(tuple(ordered), tuple(carried))
