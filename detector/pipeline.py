"""Spans in, incidents out: the parts of the detector wired together, free of sockets and tasks."""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent.otlp import codec
from agent.otlp.receiver import Verdict
from detector.config import Config
from detector.model import SeriesKey, WindowVerdict
from detector.series import Windower
from detector.sources.embedded import EmbeddedSource
from detector.store.embedded import Store
from detector.trigger import Transitions, Trigger
from detector.watch import Watch

_INFORMATIVE = frozenset({"segments_over_cap", "late_requests"})


@dataclass(frozen=True)
class _Losses:
    """Cumulative losses at one moment."""

    time_unix_s: float
    dropped: Counter[str]


class Pipeline:
    """Store, windower, watch and trigger; `accept` takes OTLP in, `tick` moves time on."""

    def __init__(self, config: Config, state: Path, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windower = Windower(config.series)
        self._losses: deque[_Losses] = deque(maxlen=int(config.store.max_age_s) + 1)
        self.store = Store(config.store, state)
        self.source = EmbeddedSource(self.store)
        self.watch = Watch(config)
        self.trigger = Trigger(config, self.watch)
        self.last_window_end_unix_s = 0.0

    async def accept(self, signal: codec.Signal, message: codec.Message) -> Verdict:
        """Take in one OTLP request; logs are not used and say so."""
        now = self._clock()
        if signal is codec.Signal.TRACES:
            spans = codec.spans(message)
            self._windower.add(self.store.add_spans(spans, now))
            return Verdict()
        if signal is codec.Signal.METRICS:
            self.store.add_points(codec.points(message), now)
            return Verdict()
        return Verdict(rejected=codec.count_items(message), reason="logs are not stored")

    def reload(self) -> int:
        """Take the last minutes back from disk, so that a restart keeps its baseline; counts spans."""
        now = self._clock()
        spans = self.store.reload(now)
        self._windower.add(spans)
        for window in self._windower.close(now):
            self.watch.judge(window, ())
            self.last_window_end_unix_s = window.end_unix_s
        return len(spans)

    def tick(self) -> list[Transitions]:
        """Close the windows that are due, judge them, and return what changed."""
        now = self._clock()
        changes = []
        for window in self._windower.close(now):
            self.watch.judge(window, self.trigger.open_targets())
            changes.append(self.trigger.update(window.end_unix_s))
            self.last_window_end_unix_s = window.end_unix_s
        self._losses.append(_Losses(now, self.dropped()))
        return changes

    def dropped(self) -> Counter[str]:
        """Return what was lost or refused since the start, by reason."""
        return self.store.dropped() + self._windower.dropped

    def dropped_since(self, since_unix_s: float) -> dict[str, int]:
        """Return what an analysis that looks back to `since_unix_s` lacks, by reason."""
        before = [loss.dropped for loss in self._losses if loss.time_unix_s <= since_unix_s]
        lost = self.dropped()
        lost.subtract(before[-1] if before else {})
        return {
            reason: count
            for reason, count in sorted(lost.items())
            if count > 0 and reason not in _INFORMATIVE
        }

    def series(self, limit: int) -> list[tuple[SeriesKey, list[WindowVerdict]]]:
        """Return the recent verdicts of at most `limit` series, ordered by key."""
        judges = sorted(self.watch.judges.items())[:limit]
        return [(key, list(judge.verdicts)) for key, judge in judges]
