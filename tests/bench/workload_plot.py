"""Latencies as lines of an SVG: for each run the share of requests that were answered within so many seconds."""

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from kernels.load.tally import quantile

WIDTH, HEIGHT, MARGIN = 720, 420, 60
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Told apart by the colour-blind, too (Okabe and Ito, 2008)."""
_SHARES = tuple(step / 100 for step in range(101))


def svg(title: str, curves: Mapping[str, Sequence[float]]) -> str:
    """Draw the curves over a logarithmic axis of seconds."""
    ordered = {name: sorted(values) for name, values in curves.items() if values}
    low, high = _decades([value for values in ordered.values() for value in values])
    lines = [_axis(low, high)]
    for at, (name, values) in enumerate(ordered.items()):
        colour = COLOURS[at % len(COLOURS)]
        lines += [_curve(values, colour, low, high), _legend(name, colour, at)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{MARGIN}" y="24" font-size="15">{escape(title)}</text>',
            *lines,
            "</svg>\n",
        ]
    )


def _decades(values: Sequence[float]) -> tuple[int, int]:
    positive = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(positive)))
    return low, max(low + 1, math.ceil(math.log10(max(positive))))


def _x(seconds: float, low: int, high: int) -> float:
    share = (math.log10(max(seconds, 10.0**low)) - low) / (high - low)
    return MARGIN + share * (WIDTH - 2 * MARGIN)


def _y(share: float) -> float:
    return HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN)


def _axis(low: int, high: int) -> str:
    parts = []
    for decade in range(low, high + 1):
        x = _x(10.0**decade, low, high)
        parts.append(
            f'<path d="M{x:.1f} {_y(0):.1f}V{_y(1):.1f}" stroke="#ddd"/>'
            f'<text x="{x:.1f}" y="{_y(0) + 20:.1f}" text-anchor="middle">{10.0**decade:g} s</text>'
        )
    for share in (0.0, 0.5, 0.95, 0.99):
        y = _y(share)
        parts.append(
            f'<path d="M{MARGIN} {y:.1f}H{WIDTH - MARGIN}" stroke="#ddd"/>'
            f'<text x="{MARGIN - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        )
    return "\n".join(parts)


def _curve(ordered: Sequence[float], colour: str, low: int, high: int) -> str:
    points = " ".join(
        f"{_x(quantile(ordered, share) or 0.0, low, high):.1f},{_y(share):.1f}" for share in _SHARES
    )
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _legend(name: str, colour: str, at: int) -> str:
    y = HEIGHT - MARGIN - 18 * (at + 1)
    right = WIDTH - MARGIN
    return (
        f'<path d="M{right - 30} {y}H{right}" stroke="{colour}" stroke-width="2"/>'
        f'<text x="{right - 38}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
    )
