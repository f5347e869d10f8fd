"""Which durations are slow: above the running 95 % quantile of their kind within the last minute.

The quantile is read from a histogram whose buckets are an eighth of an octave wide (9 %), so that a span is slow
when its bucket lies above the quantile's.
"""

import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

Key = tuple[str, str]
"""Service and operation."""

QUANTILE = 0.95
MIN_COUNT = 40
"""Below that many durations nothing is known of a tail, and all of them count as slow."""
MAX_KEYS = 2_000
_BUCKETS_PER_OCTAVE = 8
_SLOT_S = 10.0
_SLOTS = 6
_REREAD_S = 1.0


@dataclass(slots=True)
class _Durations:
    slots: deque[tuple[float, Counter[int]]] = field(default_factory=deque)
    bar: float = -math.inf
    read_s: float = -math.inf

    def add(self, bucket: int, now_s: float) -> None:
        if not self.slots or now_s - self.slots[-1][0] >= _SLOT_S:
            self.slots.append((now_s, Counter()))
            if len(self.slots) > _SLOTS:
                self.slots.popleft()
        self.slots[-1][1][bucket] += 1

    def current_bar(self, now_s: float) -> float:
        """Return the quantile's bucket, read anew once a second; minus infinity while too little is known."""
        if now_s - self.read_s >= _REREAD_S or self.bar == -math.inf:
            self.read_s = now_s
            self.bar = self._read(now_s)
        return self.bar

    def _read(self, now_s: float) -> float:
        while self.slots and now_s - self.slots[0][0] > _SLOT_S * _SLOTS:
            self.slots.popleft()
        counts: Counter[int] = Counter()
        for _, slot in self.slots:
            counts.update(slot)
        left = QUANTILE * counts.total()
        if counts.total() < MIN_COUNT:
            return -math.inf
        for bucket in sorted(counts):
            left -= counts[bucket]
            if left <= 0:
                return bucket
        return max(counts)


class SlowBar:
    """Judges durations by those before them; the kind that was not seen longest makes room for a new one."""

    def __init__(
        self, max_keys: int = MAX_KEYS, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_keys = max_keys
        self._monotonic_s = monotonic_s
        self._kinds: OrderedDict[Key, _Durations] = OrderedDict()

    def is_slow(self, key: Key, duration_s: float) -> bool:
        """Tell whether a duration is slow for its kind, and learn it."""
        now_s = self._monotonic_s()
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Durations()
            if len(self._kinds) > self._max_keys:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(key)
        bucket = math.floor(math.log2(max(duration_s, 1e-9)) * _BUCKETS_PER_OCTAVE)
        slow = bucket > kind.current_bar(now_s)
        kind.add(bucket, now_s)
        return slow
