"""The P99 chart as inline SVG; positions are percentages of the width, so text never shrinks.

Colours come from the page's style sheet by class, so that dark mode and print need no second picture.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

from detector.model import WindowVerdict
from detector.report import text, units
from detector.report.markup import Markup, element, join
from detector.report.windows import Windows

_PLOT_TOP, _PLOT_BOTTOM, _HEIGHT = 24.0, 168.0, 190.0
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_TICKS = 3


class _Plane:
    """Maps time to 0..1000 and seconds to pixels; time is stretched to the width of the page."""

    def __init__(self, windows: Sequence[WindowVerdict]) -> None:
        self.start_s = windows[0].start_unix_s
        self.end_s = max(windows[-1].end_unix_s, self.start_s + 1e-9)
        heights = [v for w in windows for v in (w.p99_s, w.upper_s) if units.known(v) and v > 0]
        self.step_s = _tick_step(max(heights, default=1.0))
        self.top_s = self.step_s * -(-max(heights, default=1.0) // self.step_s)

    def x(self, unix_s: float) -> float:
        """Position in per cent of the width."""
        return 100 * (unix_s - self.start_s) / (self.end_s - self.start_s)

    def y(self, seconds: float) -> float:
        """Position in pixels from the top."""
        return _PLOT_BOTTOM - (_PLOT_BOTTOM - _PLOT_TOP) * max(seconds, 0.0) / self.top_s

    def point(self, window: WindowVerdict, seconds: float) -> str:
        """Give a vertex at the middle of a window, for a path in the stretched plane."""
        middle = (window.start_unix_s + window.end_unix_s) / 2
        return f"{self.x(middle) * 10:.1f} {self.y(seconds):.1f}"


def _tick_step(highest: float) -> float:
    """Choose a round step that gives about three grid lines."""
    rough = highest / _TICKS
    power = 10.0 ** _exponent(rough)
    return next(step * power for step in _STEPS if step * power >= rough * 0.999)


def _exponent(value: float) -> int:
    return int(f"{value:e}".rsplit("e", maxsplit=1)[1])


def p99_chart(windows: Windows) -> Markup:
    """Draw the P99 of each window, its forecast band, and mark the windows out of band."""
    if not windows.all:
        return element("p", "No windows were kept with the incident.", class_="none")
    plane = _Plane(windows.all)
    left = [window for window in windows.all if window.out_of_band]
    return element(
        "svg",
        element("title", f"P99 of {windows.name}", id="p99-title"),
        element("desc", _describe(windows, left), id="p99-desc"),
        _grid(plane),
        _onset_region(plane, windows.onset_unix_s),
        _stretched(plane, windows.all),
        _ticks(plane),
        *[_dot(plane, window) for window in left],
        _onset_label(plane, windows.onset_unix_s),
        _time_axis(plane),
        class_="p99",
        width="100%",
        height=_HEIGHT,
        role="img",
        aria_labelledby="p99-title p99-desc",
    )


def _describe(windows: Windows, left: Sequence[WindowVerdict]) -> str:
    peak = units.duration(windows.peak_s)
    return (
        f"{len(windows.all)} windows, {windows.band} at the onset. {len(left)} windows are out of "
        f"band, from {units.clock(windows.onset_unix_s)} UTC on; the highest P99 is {peak}."
    )


def _grid(plane: _Plane) -> Markup:
    lines = []
    for index in range(round(plane.top_s / plane.step_s) + 1):
        y = plane.y(index * plane.step_s)
        kind = "base" if index == 0 else "grid"
        lines.append(element("line", x1="0", x2="100%", y1=y, y2=y, class_=kind))
    return join(*lines)


def _ticks(plane: _Plane) -> Markup:
    heights = [index * plane.step_s for index in range(1, round(plane.top_s / plane.step_s) + 1)]
    return join(*[element("text", units.duration(s), x="0", y=plane.y(s) - 4) for s in heights])


def _onset_region(plane: _Plane, onset_unix_s: float) -> Markup:
    x = min(max(plane.x(onset_unix_s), 0.0), 100.0)
    height = _PLOT_BOTTOM - _PLOT_TOP
    return element(
        "rect", x=f"{x:.2f}%", y=_PLOT_TOP, width=f"{100 - x:.2f}%", height=height, class_="since"
    )


def _stretched(plane: _Plane, windows: Sequence[WindowVerdict]) -> Markup:
    """Draw band, forecast and P99 in a plane of 1000 units that stretches to the page's width."""
    return element(
        "svg",
        *[_band(plane, run) for run in _runs(windows, _has_band)],
        *[_line(plane, run, "forecast") for run in _runs(windows, _has_forecast)],
        *[_line(plane, run, "observed") for run in _runs(windows, _has_p99)],
        width="100%",
        height=_HEIGHT,
        viewBox=f"0 0 1000 {_HEIGHT:.0f}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _has_band(window: WindowVerdict) -> bool:
    return units.known(window.lower_s) and units.known(window.upper_s) and window.upper_s > 0


def _has_forecast(window: WindowVerdict) -> bool:
    return units.known(window.forecast_p99_s) and window.forecast_p99_s > 0


def _has_p99(window: WindowVerdict) -> bool:
    return units.known(window.p99_s) and window.n > 0


def _runs(
    windows: Sequence[WindowVerdict], has: Callable[[WindowVerdict], bool]
) -> list[list[WindowVerdict]]:
    """Split into runs without a gap: what is unknown is not drawn."""
    return [list(run) for known, run in groupby(windows, key=has) if known]


def _band(plane: _Plane, run: Sequence[WindowVerdict]) -> Markup:
    there = [plane.point(window, window.upper_s) for window in run]
    back = [plane.point(window, window.lower_s) for window in reversed(run)]
    return element("path", d=f"M{' L'.join(there + back)}Z", class_="band")


def _line(plane: _Plane, run: Sequence[WindowVerdict], kind: str) -> Markup:
    heights = [w.p99_s if kind == "observed" else w.forecast_p99_s for w in run]
    points = [plane.point(window, height) for window, height in zip(run, heights, strict=True)]
    return element("path", d=f"M{' L'.join(points)}", class_=kind)


def _dot(plane: _Plane, window: WindowVerdict) -> Markup:
    if not _has_p99(window):
        return Markup("")
    middle = (window.start_unix_s + window.end_unix_s) / 2
    note = (
        f"{units.clock(window.start_unix_s)} UTC: P99 {units.duration(window.p99_s)}, "
        f"{text.band(window)}, {window.exceedances} of {window.n} above the forecast"
    )
    return element(
        "circle",
        element("title", note),
        cx=f"{plane.x(middle):.2f}%",
        cy=plane.y(window.p99_s),
        r="4",
        class_="out",
    )


def _onset_label(plane: _Plane, onset_unix_s: float) -> Markup:
    x = min(max(plane.x(onset_unix_s), 0.0), 100.0)
    late = x > 50
    return join(
        element(
            "line",
            x1=f"{x:.2f}%",
            x2=f"{x:.2f}%",
            y1=_PLOT_TOP - 14,
            y2=_PLOT_BOTTOM,
            class_="onset",
        ),
        element(
            "text",
            f"left its band {units.clock(onset_unix_s)}",
            x=f"{x:.2f}%",
            dx="-6" if late else "6",
            y=_PLOT_TOP - 8,
            class_="onset-label end" if late else "onset-label",
        ),
    )


def _time_axis(plane: _Plane) -> Markup:
    y = _HEIGHT - 6
    return join(
        element("text", f"{units.clock(plane.start_s)} UTC", x="0", y=y),
        element("text", f"{units.clock(plane.end_s)} UTC", x="100%", y=y, class_="end"),
    )
