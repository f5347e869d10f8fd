"""The embedded store: answers come from the ring, the segments carry it over a restart."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from agent.telemetry.model import Point, Span
from detector.config import StoreConfig
from detector.store.ring import Ring
from detector.store.segments import Segments


class Store:
    """Takes spans and points in, answers for the last minutes, flushes to STATE/segments."""

    def __init__(self, config: StoreConfig, state: Path) -> None:
        self._ring = Ring(config)
        self._segments = Segments(state / "segments", config.segment_cap_bytes)
        self._config = config
        self._unwritten_spans: list[Span] = []
        self._unwritten_points: list[Point] = []
        self._writing = asyncio.Lock()

    def add_spans(self, spans: Iterable[Span], now_unix_s: float) -> list[Span]:
        """Take spans in; returns those that were new and in time."""
        fresh = self._ring.add_spans(spans, now_unix_s)
        self._unwritten_spans.extend(fresh)
        return fresh

    def add_points(self, points: Iterable[Point], now_unix_s: float) -> list[Point]:
        """Take points in; returns those that were in time."""
        fresh = self._ring.add_points(points, now_unix_s)
        self._unwritten_points.extend(fresh)
        return fresh

    def spans(self, start_unix_s: float, end_unix_s: float) -> list[Span]:
        """Spans that ended in [start, end), ordered by start."""
        return self._ring.spans(start_unix_s, end_unix_s)

    def points(self, start_unix_s: float, end_unix_s: float) -> list[Point]:
        """Points of [start, end), ordered by time."""
        return self._ring.points(start_unix_s, end_unix_s)

    def dropped(self) -> Counter[str]:
        """Return what was lost or refused since the start, by reason."""
        return self._ring.dropped + self._segments.dropped

    def taken(self) -> Counter[str]:
        """Spans and points taken in since the start."""
        return self._ring.taken

    async def flush(self) -> None:
        """Write what is not on disk yet, in a thread."""
        async with self._writing:
            spans, self._unwritten_spans = self._unwritten_spans, []
            points, self._unwritten_points = self._unwritten_points, []
            await asyncio.to_thread(self._segments.write, spans, points)

    def reload(self, now_unix_s: float) -> list[Span]:
        """Fill the ring from recent segments; returns the spans, ordered by end."""
        since = round((now_unix_s - self._config.max_age_s) * 1e9)
        recent = [s for s in self._segments.recent_spans(since) if s.end_unix_ns >= since]
        recent.sort(key=lambda span: span.end_unix_ns)
        fresh = self._ring.add_spans(recent, now_unix_s)
        points = [p for p in self._segments.recent_points(since) if p.time_unix_ns >= since]
        self._ring.add_points(sorted(points, key=lambda p: p.time_unix_ns), now_unix_s)
        return fresh
