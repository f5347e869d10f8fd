"""Shares of values above bounds of the server's own buckets.

Between two bounds nothing is known: vLLM's run from 20 to 30 to 40 s, and a quantile between them would be made up. How many
values lie above a bound is exact.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass

from agent.servers import table

WINDOW_S = 30.0
"""Two exports of the default interval, so that no slow spell falls between two of them."""

LATENCY = {
    table.DURATION: "request",
    table.TTFT: "first_token",
    table.TPOT: "output_token",
    table.INTER_TOKEN: "inter_token",
    table.QUEUE_TIME: "queue",
}
DEFAULT_THRESHOLDS_S: dict[str, tuple[float, ...]] = {
    table.DURATION: (1.0, 5.0, 10.0, 30.0),
    table.TTFT: (0.1, 0.5, 1.0, 5.0),
    table.TPOT: (0.05, 0.1, 0.2, 0.5),
    table.INTER_TOKEN: (0.05, 0.1, 0.2, 0.5),
    table.QUEUE_TIME: (0.5, 1.0, 5.0),
}
"""Bounds that most servers have; one that a server lacks is left out for it."""


@dataclass(frozen=True, slots=True)
class Counts:
    """A histogram at a time: cumulative counts at its bounds, the last of all values."""

    time_unix_ns: int
    start_unix_ns: int
    bounds: Sequence[float]
    counts: Sequence[float]


class SlowShares:
    """Keeps the last half minute of each histogram."""

    def __init__(self, thresholds_s: Sequence[float] = ()) -> None:
        """Without `thresholds_s` the defaults count, with them these for every latency."""
        self._thresholds_s = tuple(sorted(thresholds_s))
        self._past: dict[Hashable, deque[Counts]] = {}

    def add(self, metric: str, key: Hashable, now: Counts) -> Iterator[tuple[float, float]]:
        """Yield each threshold and the share above it since the oldest reading of the window.

        Nothing comes of the first reading, nor of the first one after a restart, nor where there was no value.
        """
        past = self._past.setdefault(key, deque())
        if past and (past[-1].start_unix_ns, past[-1].bounds) != (now.start_unix_ns, now.bounds):
            past.clear()
        past.append(now)
        while len(past) > 2 and now.time_unix_ns - past[1].time_unix_ns >= WINDOW_S * 1e9:
            past.popleft()
        then = past[0]
        values = now.counts[-1] - then.counts[-1]
        if values <= 0:
            return
        for threshold, place in self._places(metric, now.bounds):
            below = now.counts[place] - then.counts[place]
            yield threshold, min(1.0, max(0.0, 1.0 - below / values))

    def forget(self, kept: Collection[Hashable]) -> None:
        """Let go of all histograms but these."""
        self._past = {key: past for key, past in self._past.items() if key in kept}

    def _places(self, metric: str, bounds: Sequence[float]) -> Iterator[tuple[float, int]]:
        for threshold in self._thresholds_s or DEFAULT_THRESHOLDS_S[metric]:
            place = bisect_left(bounds, threshold * (1 - 1e-9))
            if place < len(bounds) and bounds[place] <= threshold * (1 + 1e-9):
                yield threshold, place
