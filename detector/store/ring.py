"""The last minutes of spans and points in memory, bounded by count and age."""

from collections import Counter, deque
from collections.abc import Iterable

from agent.telemetry.model import Point, Span
from detector.config import StoreConfig


class Ring:
    """Spans and points in the order in which they came; answers are ordered by time.

    Ingest of spans is idempotent: a (trace_id, span_id) that it holds is not taken again. What falls out before
    `max_age_s` because of a count is counted as dropped; what is older or claims to be from the future is refused.
    """

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._spans: deque[Span] = deque()
        self._points: deque[Point] = deque()
        self._ids: set[tuple[str, str]] = set()
        self.dropped: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()

    def add_spans(self, spans: Iterable[Span], now_unix_s: float) -> list[Span]:
        """Take spans in; returns those that were new and in time."""
        oldest_ns, newest_ns = self._limits_ns(now_unix_s)
        fresh = []
        for span in spans:
            if not oldest_ns <= span.end_unix_ns <= newest_ns:
                self.dropped["spans_out_of_time"] += 1
            elif (identity := (span.trace_id, span.span_id)) in self._ids:
                self.taken["duplicate_spans"] += 1
            else:
                self._ids.add(identity)
                fresh.append(span)
        self._spans.extend(fresh)
        self.taken["spans"] += len(fresh)
        self._evict(oldest_ns)
        return fresh

    def add_points(self, points: Iterable[Point], now_unix_s: float) -> list[Point]:
        """Take points in; returns those that were in time."""
        oldest_ns, newest_ns = self._limits_ns(now_unix_s)
        fresh = []
        for point in points:
            if oldest_ns <= point.time_unix_ns <= newest_ns:
                fresh.append(point)
            else:
                self.dropped["points_out_of_time"] += 1
        self._points.extend(fresh)
        self.taken["points"] += len(fresh)
        self._evict(oldest_ns)
        return fresh

    def spans(self, start_unix_s: float, end_unix_s: float) -> list[Span]:
        """Spans that ended in [start, end), ordered by start."""
        start, end = round(start_unix_s * 1e9), round(end_unix_s * 1e9)
        found = [span for span in self._spans if start <= span.end_unix_ns < end]
        return sorted(found, key=lambda s: (s.start_unix_ns, s.trace_id, s.span_id))

    def points(self, start_unix_s: float, end_unix_s: float) -> list[Point]:
        """Points of [start, end), ordered by time."""
        start, end = round(start_unix_s * 1e9), round(end_unix_s * 1e9)
        found = [point for point in self._points if start <= point.time_unix_ns < end]
        return sorted(found, key=lambda p: (p.time_unix_ns, p.metric, str(p.attributes)))

    def _limits_ns(self, now_unix_s: float) -> tuple[int, int]:
        oldest = round((now_unix_s - self._config.max_age_s) * 1e9)
        return oldest, round((now_unix_s + self._config.max_future_s) * 1e9)

    def _evict(self, oldest_ns: int) -> None:
        while self._spans and self._spans[0].end_unix_ns < oldest_ns:
            self._forget_span()
        while len(self._spans) > self._config.max_spans:
            self._forget_span()
            self.dropped["spans_ring_full"] += 1
        while self._points and self._points[0].time_unix_ns < oldest_ns:
            self._points.popleft()
        while len(self._points) > self._config.max_points:
            self._points.popleft()
            self.dropped["points_ring_full"] += 1

    def _forget_span(self) -> None:
        span = self._spans.popleft()
        self._ids.discard((span.trace_id, span.span_id))
