"""What a telemetry source promises to those who look at an incident."""

from typing import Protocol

from agent.telemetry.model import Point, Span


class Source(Protocol):
    """Spans and points of a stretch of time [start, end), seconds since the epoch."""

    def spans(self, start_unix_s: float, end_unix_s: float) -> list[Span]:
        """Spans of all services that ended in it, ordered by start."""

    def points(self, start_unix_s: float, end_unix_s: float) -> list[Point]:
        """Metric points of it, ordered by time."""
