"""What a demo tells while it runs, and the plain form of it: one line per phase and every ten seconds."""

import sys
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, TextIO

from detector.cli.demo.observe import Observed

LINE_EVERY_S = 10.0
SIGMA = "\N{GREEK SMALL LETTER SIGMA}"


class Phase(StrEnum):
    """The phases of a run, in order."""

    START = "start"
    BASELINE = "baseline"
    WATCHING = "watching"
    DETECTED = "detected"
    ANALYSING = "analysing"
    REPORT = "report"


class View(Protocol):
    """Where progress goes."""

    def phase(self, phase: Phase, text: str) -> None:
        """Tell that a phase begins."""

    def show(self, seen: Observed) -> None:
        """Show the latest observations."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class PlainView:
    """Lines for a log or a pipe."""

    def __init__(
        self, out: TextIO = sys.stderr, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out, self._clock = out, clock
        self._began_s = self._spoke_s = clock()
        self._phase = Phase.START

    def phase(self, phase: Phase, text: str) -> None:
        """Print the phase at once."""
        self._phase = phase
        self._line(text)

    def show(self, seen: Observed) -> None:
        """Print a line when there was none for a while."""
        if self._clock() - self._spoke_s >= LINE_EVERY_S:
            self._line(summary(seen, self._phase))

    def close(self) -> None:
        """Nothing to undo."""

    def _line(self, text: str) -> None:
        self._spoke_s = self._clock()
        self._out.write(
            f"[{self._spoke_s - self._began_s:5.1f} s] {self._phase.value:<9}  {text}\n"
        )
        self._out.flush()


def summary(seen: Observed, phase: Phase) -> str:
    """Put the observations into one line."""
    parts = []
    if phase is Phase.BASELINE:
        parts.append(f"{seen.status.baseline_progress:.0%} learned")
    if seen.windows:
        last = seen.windows[-1]
        parts.append(f"P99 {last.p99_s * 1e3:.0f} ms (forecast {last.forecast_p99_s * 1e3:.0f})")
        parts.append(f"residual {last.residual_sigma:+.1f} {SIGMA}, n {last.n}")
    load = seen.load
    parts.append(
        f"{load.rate:.0f} requests/s, {load.ok} ok, {load.rejected} rejected, {load.failed} failed"
    )
    return ", ".join(parts)
