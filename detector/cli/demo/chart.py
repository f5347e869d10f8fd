"""The P99 with its forecast band as characters: a line of braille dots over a shaded band."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from detector.model import WindowVerdict

_DOTS_DOWN = 4
_DOTS_ACROSS = 2
_BRAILLE = 0x2800
_DOT_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of each dot by row and column (Unicode block U+2800, dots 1 to 8)."""
_LEAST_SPAN = 4.0
"""The axis spans at least this factor, so that noise does not look like a mountain."""
_WINDOWS_ACROSS = 40
"""About as many as a run has."""


class Ink(StrEnum):
    """What a cell shows; the view decides on colours."""

    EMPTY = "empty"
    BAND = "band"
    LINE = "line"
    LINE_IN_BAND = "line in band"
    ALARM = "alarm"
    ALARM_IN_BAND = "alarm in band"


_INKS = {
    (False, False): Ink.LINE,
    (False, True): Ink.LINE_IN_BAND,
    (True, False): Ink.ALARM,
    (True, True): Ink.ALARM_IN_BAND,
}
"""By whether the column is out of band and whether the cell lies in it."""


Cell = tuple[str, Ink]


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis of seconds over `rows` of characters."""

    low_s: float
    high_s: float
    rows: int

    def dot(self, value_s: float) -> int:
        """Place a value, in dots from the top."""
        last = self.rows * _DOTS_DOWN - 1
        share = math.log(max(value_s, self.low_s) / self.low_s) / math.log(self.high_s / self.low_s)
        return round((1 - min(share, 1.0)) * last)


def draw(
    windows: Sequence[WindowVerdict], columns: int, rows: int
) -> tuple[list[list[Cell]], Scale]:
    """Return rows of cells from the top with the axis they are drawn on; the latest windows that fit."""
    per_window = max(1, columns // _WINDOWS_ACROSS)
    shown = [w for w in windows if w.n and w.p99_s > 0][-(columns // per_window) :]
    scale = Scale(*_range(shown), rows)
    canvas = _Canvas(columns, scale)
    for index, window in enumerate(shown):
        canvas.add(window, range(index * per_window, (index + 1) * per_window))
    return canvas.cells(), scale


@dataclass
class _Canvas:
    """Braille dots with a shaded band behind."""

    columns: int
    scale: Scale
    _lit: set[tuple[int, int]] = field(default_factory=set)
    _band: set[tuple[int, int]] = field(default_factory=set)
    _alarm: set[int] = field(default_factory=set)
    _last_dot: int | None = None

    def add(self, window: WindowVerdict, across: range) -> None:
        """Put one window onto some columns."""
        if _has_band(window):
            self._shade(across, self.scale.dot(window.upper_s), self.scale.dot(window.lower_s))
        if window.out_of_band:
            self._alarm.update(across)
        self._step(across, self.scale.dot(window.p99_s))

    def cells(self) -> list[list[Cell]]:
        """Return the characters with their ink."""
        rows = range(self.scale.rows)
        return [[self._cell(column, row) for column in range(self.columns)] for row in rows]

    def _shade(self, across: range, top: int, bottom: int) -> None:
        for row in range(top // _DOTS_DOWN, bottom // _DOTS_DOWN + 1):
            self._band.update((column, row) for column in across)

    def _step(self, across: range, dot: int) -> None:
        """Draw a level piece of the line, joined to the piece before."""
        first, end = across.start * _DOTS_ACROSS, across.stop * _DOTS_ACROSS
        self._lit.update((x, dot) for x in range(first, end))
        if self._last_dot is not None:
            low, high = sorted((self._last_dot, dot))
            self._lit.update((first, between) for between in range(low, high + 1))
        self._last_dot = dot

    def _cell(self, column: int, row: int) -> Cell:
        bits = sum(
            bit
            for down, line in enumerate(_DOT_BITS)
            for across, bit in enumerate(line)
            if (column * _DOTS_ACROSS + across, row * _DOTS_DOWN + down) in self._lit
        )
        in_band = (column, row) in self._band
        if not bits:
            return (" ", Ink.BAND if in_band else Ink.EMPTY)
        ink = _INKS[column in self._alarm, in_band]
        return (chr(_BRAILLE + bits), ink)


def _range(windows: Sequence[WindowVerdict]) -> tuple[float, float]:
    """Choose the axis: every P99 and the band's upper edge; its lower one may lie far below."""
    values = [w.p99_s for w in windows]
    values += [w.upper_s for w in windows if _has_band(w)]
    if not values:
        return 0.01, 0.01 * _LEAST_SPAN
    low, high = min(values) * 0.9, max(values) * 1.1
    if high / low < _LEAST_SPAN:
        middle, reach = math.sqrt(low * high), math.sqrt(_LEAST_SPAN)
        low, high = middle / reach, middle * reach
    return low, high


def _has_band(window: WindowVerdict) -> bool:
    return 0 < window.lower_s <= window.upper_s < math.inf
