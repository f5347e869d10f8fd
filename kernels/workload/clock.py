"""One clock for every timestamp of the process: monotonic, expressed as Unix time."""

import time
from collections.abc import Callable

STEP_NS = 100_000_000
"""A wall clock this far off was set, not drifting; what is stored by wall time must follow it."""


class Clock:
    """Monotonic nanoseconds mapped to Unix time, so that spans never run backwards.

    The mapping changes only when the wall clock is stepped (a virtual machine resumed, NTP corrected): a span that
    is open at that moment gets a wrong duration, every later one is at the right time.
    """

    def __init__(
        self,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns
        self._offset_ns = wall_ns() - monotonic_ns()

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch; safe to call from every thread."""
        monotonic_ns = self._monotonic_ns()
        offset_ns = self._wall_ns() - monotonic_ns
        if abs(offset_ns - self._offset_ns) > STEP_NS:
            self._offset_ns = offset_ns
        return monotonic_ns + self._offset_ns
