"""Windows for the views."""

from detector.model import SeriesKey, Signal, WindowVerdict

KEY = SeriesKey("chat", "tern-1", "", Signal.E2E)


def window(index: int, p99_s: float = 0.1, *, alarm: bool = False, n: int = 40) -> WindowVerdict:
    """Return the window of that index, with a band from 80 to 130 ms."""
    return WindowVerdict(
        KEY, index * 2.0, index * 2.0 + 2, n, 0, p99_s / 2, p99_s, 0.1, 0.08, 0.13, 3 if alarm else 0,
        5.1 if alarm else 0.2, alarm, not alarm,
    )  # fmt: skip
