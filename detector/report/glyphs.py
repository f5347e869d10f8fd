"""Pictures made of characters, for the terminal and for Markdown; legible without colour."""

from collections.abc import Sequence

from detector.model import WindowVerdict
from detector.report import units
from detector.report.view import Part, Share

SPARK = "▁▂▃▄▅▆▇█"
FULL, MAYBE, EMPTY = "█", "▒", "░"
PARTS = ("█", "▓", "▒", "░", "▚", "▪", "·")
"""One glyph per slot of a part."""
IN_BAND, OUT_OF_BAND, NOT_KNOWN = "─", "▲", " "


def share_bar(share: Share, width: int) -> tuple[int, int]:
    """Give the cells of a bar that are certain up to the share, and those up to its upper bound."""
    return round(share.value * width), round(share.high * width)


def share_text(share: Share, width: int) -> str:
    """Draw a share in one piece: full to the share, shaded to its upper bound."""
    full, upto = share_bar(share, width)
    return f"{FULL * full}{MAYBE * (upto - full)}{EMPTY * (width - max(full, upto))}"


def excess_text(seconds: float, largest_s: float, width: int) -> str:
    """Draw an excess; shaded where it is less than before."""
    cells = round(width * abs(seconds) / largest_s) if largest_s > 0 else 0
    return (FULL if seconds > 0 else MAYBE) * cells


def parts_cells(parts: Sequence[Part], longest_s: float, width: int) -> list[tuple[Part, int]]:
    """Divide a bar's cells among parts so that rounding never adds up to more than the whole."""
    scale = width / longest_s if longest_s > 0 else 0.0
    cells, end_s, drawn = [], 0.0, 0
    for part in parts:
        end_s += part.seconds
        upto = round(end_s * scale)
        cells.append((part, upto - drawn))
        drawn = upto
    return cells


def spark(windows: Sequence[WindowVerdict], top_s: float) -> list[tuple[str, str, bool]]:
    """Give (height, mark, out of band) of each window."""
    return [(_height(w, top_s), _mark(w), w.out_of_band) for w in windows]


def _height(window: WindowVerdict, top_s: float) -> str:
    if not units.known(window.p99_s) or window.n == 0 or top_s <= 0:
        return NOT_KNOWN
    return SPARK[min(int(len(SPARK) * window.p99_s / top_s), len(SPARK) - 1)]


def _mark(window: WindowVerdict) -> str:
    if window.out_of_band:
        return OUT_OF_BAND
    return IN_BAND if units.known(window.residual_sigma) else NOT_KNOWN
