"""Telemetry that came in over OTLP and lies in the embedded store."""

from agent.telemetry.model import Point, Span
from detector.store.embedded import Store


class EmbeddedSource:
    """Reads the store's ring; nothing leaves the process."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def spans(self, start_unix_s: float, end_unix_s: float) -> list[Span]:
        """Spans of all services that ended in it, ordered by start."""
        return self._store.spans(start_unix_s, end_unix_s)

    def points(self, start_unix_s: float, end_unix_s: float) -> list[Point]:
        """Metric points of it, ordered by time."""
        return self._store.points(start_unix_s, end_unix_s)
