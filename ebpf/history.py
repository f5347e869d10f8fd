"""What one thread has been doing for the last two minutes: its cumulative waits as a curve of at most 1200 points.

Points lie where the thread began something, as far as the samples tell; between two of them the curve is a straight
line, so 100 ms is the resolution where it does many things. While it goes on with one thing (a pool's idle worker, a
thread in a long absence) nothing is stored: the curve's end moves.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from ebpf.layout import WAITS, Wait

SLOT_NS = 100_000_000
KEPT_NS = 120_000_000_000
CAPACITY = KEPT_NS // SLOT_NS
CROWDED_NS = 160_000_000
"""Of three points so close together the middle one goes: samples between the regular ones cost no room."""

WAITS_BYTES = 4 * WAITS
"""A sample's waits: microseconds modulo 2^32, as 32-bit numbers of this machine."""
LONG_NS = SLOT_NS * 3 // 2
"""What lasted longer than this has an end of its own, which need not be a sample."""

_WRAP = 1 << 32
_HALF = 1 << 31


class History:
    """One thread's waits; they are kept in microseconds modulo 2^32 (71 minutes), of which 2 minutes are ever used."""

    __slots__ = (
        "_asleep",
        "_asleep_ns",
        "_first",
        "_moved",
        "_times",
        "_values",
        "current",
        "seen_ns",
    )

    def __init__(
        self, since_ns: int, waits: bytes, current: int, seen_ns: int, *, asleep: bool
    ) -> None:
        self._begin(since_ns, waits)
        self._moved: list[int] | None = None
        self._asleep = asleep
        self._asleep_ns = 0
        self.current = current
        """Which Wait has gone on since the last point."""
        self.seen_ns = seen_ns
        """Until when."""

    def _begin(self, since_ns: int, waits: bytes) -> None:
        self._times = array("Q", (since_ns,))
        self._values = array("I", waits)
        self._first = 0

    def __len__(self) -> int:
        return len(self._times)

    @property
    def bytes_used(self) -> int:
        """Bytes of its points."""
        return len(self._times) * self._times.itemsize + len(self._values) * self._values.itemsize

    @property
    def start_ns(self) -> int:
        """Where the curve begins, or the part of it that counts."""
        return max(self._times[self._place(0)], self.seen_ns - KEPT_NS)

    @property
    def since_ns(self) -> int:
        """Since when it has done one thing."""
        return self._times[self._place(-1)]

    def add(self, since_ns: int, waits: bytes, current: int, seen_ns: int, *, asleep: bool) -> None:
        """Add a sample: the waits as of `since_ns`, and what has gone on from there until it was seen."""
        if self._asleep:
            self._asleep_ns = self.seen_ns
        lasted_ns = since_ns - self.since_ns
        if lasted_ns > 0:
            if self._moved:
                waits = _packed(map(sum, zip(_unpacked(waits), self._moved, strict=True)))
            if lasted_ns >= LONG_NS:
                waits = self._close(since_ns, waits)
            self._append(since_ns, waits)
        self.current, self.seen_ns, self._asleep = current, seen_ns, asleep

    def between(self, start_ns: int, end_ns: int) -> tuple[list[float], int]:
        """Return the waits (microseconds, one for each Wait) and how much of the interval is known (nanoseconds)."""
        start_ns, end_ns = max(start_ns, self.start_ns), min(end_ns, self.seen_ns)
        if end_ns <= start_ns:
            return [0.0] * WAITS, 0
        before, after = self._at(start_ns), self._at(end_ns)
        waits = [(b - a) % _WRAP for a, b in zip(before, after, strict=True)]
        return [value if value < _HALF else 0.0 for value in waits], end_ns - start_ns

    def _at(self, at_ns: int) -> list[float]:
        following = self._following(at_ns)
        place = self._place(following - 1)
        before, before_ns = self._point(place), self._times[place]
        if following == len(self._times):
            moved = list(map(float, before))
            moved[self.current] += (at_ns - before_ns) / 1e3
            return moved
        place = self._place(following)
        share = (at_ns - before_ns) / (self._times[place] - before_ns)
        return [a + _rise(a, b) * share for a, b in zip(before, self._point(place), strict=True)]

    def _following(self, at_ns: int) -> int:
        """Return the index of the first point after a moment."""
        times, first = self._times, self._first
        if first == 0 or at_ns < times[0]:
            return bisect_right(times, at_ns, first) - first
        return len(times) - first + bisect_right(times, at_ns, 0, first)

    def _close(self, since_ns: int, waits: bytes) -> bytes:
        """Put a point where the last thing ended, if it lasted long; return the sample's waits, maybe corrected.

        It comes first: a thread sleeps, then waits for the CPU, then does what it does. So it lasted for all of the
        time that is not another wait's, and for as long as the thread was seen asleep.
        """
        begin_ns, values, after = self.since_ns, self._point(self._place(-1)), _unpacked(waits)
        grown = [max(_rise(a, b), 0) for a, b in zip(values, after, strict=True)]
        grown[self.current] = 0
        lasted_ns = since_ns - begin_ns - sum(grown) * 1000
        if self._asleep_ns - begin_ns > lasted_ns + SLOT_NS:
            lasted_ns += self._take_back(after, grown, self._asleep_ns - begin_ns - lasted_ns)
        if lasted_ns >= LONG_NS:
            if lasted_ns > KEPT_NS:  # all that came before is out of date
                values[self.current] += (lasted_ns - KEPT_NS) // 1000
                self._begin(begin_ns + lasted_ns - KEPT_NS, _packed(values))
                begin_ns, lasted_ns = self.since_ns, KEPT_NS
            values[self.current] += lasted_ns // 1000
            self._append(begin_ns + lasted_ns, _packed(values))
        return _packed(after)

    def _take_back(self, waits_us: list[int], grown: Sequence[int], missing_ns: int) -> int:
        """Return to the last thing what was taken for a queue though the thread was seen asleep; return how much."""
        self._moved = moved = self._moved or [0] * WAITS
        taken_us = 0
        for queue in (Wait.RUNQUEUE, Wait.THROTTLED):
            part_us = min(grown[queue], missing_ns // 1000 - taken_us)
            for waits in (waits_us, moved):
                waits[queue] -= part_us
                waits[self.current] += part_us
            taken_us += part_us
        return taken_us * 1000

    def _append(self, at_ns: int, waits: bytes) -> None:
        count = len(self._times)
        if self._is_crowded(at_ns):
            place = self._place(-1)
        elif count < CAPACITY:
            self._times.append(at_ns)
            self._values.frombytes(waits)
            return
        else:
            place = self._first
            self._first = (self._first + 1) % CAPACITY
        self._times[place] = at_ns
        self._values[place * WAITS : (place + 1) * WAITS] = array("I", waits)

    def _is_crowded(self, at_ns: int) -> bool:
        """Tell whether the last point can go for the sake of a new one."""
        if at_ns <= self.since_ns:
            return True
        return len(self._times) > 1 and at_ns - self._times[self._place(-2)] < CROWDED_NS

    def _place(self, index: int) -> int:
        """Return where the point of an index (from the oldest, or negative from the newest) is stored."""
        return (self._first + index) % len(self._times)

    def _point(self, place: int) -> list[int]:
        return self._values[place * WAITS : (place + 1) * WAITS].tolist()


def _packed(values: Iterable[int]) -> bytes:
    return array("I", [value % _WRAP for value in values]).tobytes()


def _unpacked(waits: bytes) -> list[int]:
    return array("I", waits).tolist()


def _rise(before: int, after: int) -> int:
    """Return the difference of two counters that wrap; negative when it has become less."""
    return (after - before + _HALF) % _WRAP - _HALF
