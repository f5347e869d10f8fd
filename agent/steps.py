"""What the steps of an engine waited for, to be looked up by time.

An engine is a thread that works in steps, each for many requests at once. A step is a span that has a ledger of its own
and links to the requests in its batch.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict

from agent.telemetry.keys import WAIT_PARTS
from agent.waits import Parts

Thread = tuple[int, int]
"""Process and thread id."""

_N = len(WAIT_PARTS)
MAX_STEPS = 16_384
MAX_ENGINES = 8


class Engine:
    """The steps of one thread in order of their start; 88 bytes each, the older half goes when it is full."""

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


class Engines:
    """The engines seen lately; the one that was idle longest makes room."""

    def __init__(self, max_engines: int = MAX_ENGINES) -> None:
        self._max_engines = max_engines
        self._engines: OrderedDict[Thread, Engine] = OrderedDict()

    def of(self, thread: Thread) -> Engine:
        """Return the engine of a thread."""
        engine = self._engines.get(thread)
        if engine is None:
            engine = self._engines[thread] = Engine()
            if len(self._engines) > self._max_engines:
                self._engines.popitem(last=False)
        self._engines.move_to_end(thread)
        return engine
