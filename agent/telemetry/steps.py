"""What a request waited for while it waited for an engine: the one join of requests and steps.

An engine works in steps, each for many requests at once and one after another. The agent joins as spans pass through;
the detector joins what reaches it without an agent having done so.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from agent.telemetry.keys import WAIT_PARTS

Parts = Sequence[float]
"""Seconds, in the order of WAIT_PARTS."""
Stretch = tuple[int, int, Parts]
"""Start and end in nanoseconds, and what was waited for in between."""

NOTHING: Parts = (0.0,) * len(WAIT_PARTS)
PHASES = frozenset(("queue", "prefill", "decode"))
"""Children of a request in which it waits for its engine; any other does work of its own."""
MAX_STEPS = 16_384
_N = len(WAIT_PARTS)


def add(one: Parts, other: Parts) -> Parts:
    """Return the sum, part by part."""
    return [a + b for a, b in zip(one, other, strict=True)]


class Steps:
    """The steps of one engine in order of their start; 88 bytes each, the older half goes when it is full."""

    def __init__(self, max_steps: int = MAX_STEPS) -> None:
        self._max_steps = max_steps
        self._starts_ns = array("q")
        self._ends_ns = array("q")
        self._parts = array("d")

    def add(self, start_ns: int, end_ns: int, parts: Parts) -> None:
        """Add a step."""
        place = bisect_right(self._starts_ns, start_ns)
        self._starts_ns.insert(place, start_ns)
        self._ends_ns.insert(place, end_ns)
        self._parts[place * _N : place * _N] = array("d", parts)
        if len(self._starts_ns) > self._max_steps:
            half = self._max_steps // 2
            del self._starts_ns[:half], self._ends_ns[:half], self._parts[: half * _N]

    def between(self, start_ns: int, end_ns: int) -> Parts | None:
        """Return what the steps in an interval waited for, cut steps in proportion; None where none ran."""
        first = max(bisect_right(self._starts_ns, start_ns) - 1, 0)
        last = bisect_left(self._starts_ns, end_ns)
        while first < last and self._ends_ns[first] <= start_ns:
            first += 1
        if first >= last or end_ns <= start_ns:
            return None
        sums = [sum(self._parts[first * _N + part : last * _N : _N]) for part in range(_N)]
        self._cut(sums, first, start_ns, end_ns)
        if last - 1 > first:
            self._cut(sums, last - 1, start_ns, end_ns)
        return sums

    def _cut(self, sums: list[float], step: int, start_ns: int, end_ns: int) -> None:
        """Take off the share of a step that lies outside."""
        begun_ns, ended_ns = self._starts_ns[step], self._ends_ns[step]
        inside_ns = min(ended_ns, end_ns) - max(begun_ns, start_ns)
        outside = 1.0 - inside_ns / max(ended_ns - begun_ns, 1)
        if outside > 0.0:
            for part in range(_N):
                sums[part] -= outside * self._parts[step * _N + part]


def request_parts(steps: Steps, first_ns: int, last_ns: int, children: Iterable[Stretch]) -> Parts:
    """Return what a request waited for: for its engine from its first phase to its last step, and outside by its children.

    Whoever's steps those were: a prefill of somebody else in between holds it up as well.
    """
    parts = steps.between(first_ns, last_ns) or NOTHING
    for start_ns, end_ns, waited in children:
        if end_ns <= first_ns or start_ns >= last_ns:
            parts = add(parts, waited)
    return parts
