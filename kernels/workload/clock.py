"""One clock for every timestamp of the process: monotonic, expressed as Unix time."""

import time
from collections.abc import Callable


class Clock:
    """Monotonic nanoseconds mapped once to Unix time, so that spans never run backwards."""

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._monotonic_ns = monotonic_ns
        self._offset_ns = time.time_ns() - monotonic_ns()

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch; safe to call from every thread."""
        return self._monotonic_ns() + self._offset_ns
