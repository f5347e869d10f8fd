"""Counters and histograms of a server as ours, across its restarts.

Source: OpenTelemetry metrics data model, "Resets and Gaps": a reset shows by a new start time, never by a value that
falls under an old one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agent.servers.page import Labels

Member = tuple[str, Labels]
"""A series of the server: its name and labels."""
Values = tuple[float, ...]


class Reading(NamedTuple):
    """What a series says now; `created_s` is when it began to count, 0 if the server does not tell."""

    values: Values
    created_s: float
    rising: int
    """So many of the values, from the first, can only rise; a sum of times is no such value for sure."""


@dataclass(slots=True)
class _Known:
    values: Values
    base: Values
    created_s: float


class Cumulative:
    """One series of ours, which is the sum of some of the server's.

    When one of them begins anew, ours does, at the time of the reading before; of the others only what came since
    counts. One that is gone (a worker that has ended) stays in the sum.
    """

    def __init__(self) -> None:
        self._known: dict[Member, _Known] = {}
        self.start_unix_ns = 0

    def add(self, readings: Mapping[Member, Reading], before_unix_ns: int) -> Values:
        """Return the values since `start_unix_ns`; `before_unix_ns` is the reading before, 0 if there was none."""
        if self._known:
            again = [key for key, reading in readings.items() if self._began_anew(key, reading)]
            if again:
                self._begin(again, readings, before_unix_ns)
        else:
            self.start_unix_ns = _first_start_ns(readings, before_unix_ns)
        for key, (values, created_s, _) in readings.items():
            known = self._known.get(key)
            if known is None:
                self._known[key] = _Known(values, (0.0,) * len(values), created_s)
            else:
                known.values, known.created_s = values, created_s
        return self._total()

    def _began_anew(self, key: Member, now: Reading) -> bool:
        before = self._known.get(key)
        if before is None:
            return False
        if len(now.values) != len(before.values) or 0 < before.created_s < now.created_s:
            return True
        return any(
            value < old
            for _, value, old in zip(range(now.rising), now.values, before.values, strict=False)
        )

    def _begin(
        self, again: list[Member], readings: Mapping[Member, Reading], before_unix_ns: int
    ) -> None:
        size = len(next(iter(readings.values())).values)
        for key in again:
            del self._known[key]
        self._known = {k: one for k, one in self._known.items() if len(one.values) == size}
        for known in self._known.values():
            known.base = known.values
        created_s = min(readings[key].created_s for key in again)
        self.start_unix_ns = max(before_unix_ns, 0 if self._known else _unix_ns(created_s))

    def _total(self) -> Values:
        if len(self._known) == 1:
            ((_, known),) = self._known.items()
            if not any(known.base):
                return known.values
        rows = [
            [value - base for value, base in zip(known.values, known.base, strict=True)]
            for known in self._known.values()
        ]
        return tuple(map(sum, zip(*rows, strict=True)))


def _first_start_ns(readings: Mapping[Member, Reading], before_unix_ns: int) -> int:
    """Return when the series began: as the server says, or after the reading at which it was not there."""
    created_s = min((reading.created_s for reading in readings.values()), default=0.0)
    return max(_unix_ns(created_s), before_unix_ns)


def _unix_ns(time_s: float) -> int:
    """Return a time as a server tells it, which is no more exact than a microsecond."""
    return round(time_s * 1e6) * 1000
