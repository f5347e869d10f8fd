"""The report on one terminal screen: 100 columns, about 45 lines, colour optional."""

from io import StringIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from detector.model import Report, Verdict
from detector.report import glyphs, terminal_causes, terminal_tables, text, units, view
from detector.report.screen import Screen

_ACCENTS = {
    Verdict.FAULT: "red",
    Verdict.DEMAND: "blue",
    Verdict.NONE: "green",
    Verdict.INCONCLUSIVE: "magenta",
}
_NARROWEST = 60
_SPARK_NOTE = 36


def render(report: Report, width: int = 100, color: bool = True) -> str:
    """Lay a report out in `width` columns; without colour there is not one escape code in it."""
    screen = Screen(max(width, _NARROWEST), _ACCENTS[report.verdict])
    shown = view.build(report)
    console = Console(
        file=StringIO(),
        width=screen.width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as captured:
        for block in _blocks(shown, screen):
            console.print(block)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _blocks(shown: view.View, screen: Screen) -> list[RenderableType]:
    return [
        *_head(shown, screen),
        *_sparkline(shown, screen),
        *terminal_causes.blocks(shown, screen),
        *terminal_tables.operations(shown, screen),
        *terminal_tables.changes(shown, screen),
        *terminal_tables.requests(shown, screen),
        *terminal_tables.steps(shown, screen),
        *terminal_tables.decided(shown, screen),
    ]


def _head(shown: view.View, screen: Screen) -> list[RenderableType]:
    report = shown.report
    badge = Text(f" {shown.prose.badge.upper()} ", f"bold reverse {screen.accent}")
    title = Table.grid(padding=(0, 2, 0, 0))
    title.add_row(badge, Text(shown.headline, "bold"))
    return [
        title,
        Text(text.p99_sentence(report)),
        Text(f"{shown.prose.meaning} ").append(f"{text.counts(report)}.", "dim"),
    ]


def _sparkline(shown: view.View, screen: Screen) -> list[RenderableType]:
    """Draw the latest windows that fit; below each, whether it was in its band."""
    series = shown.windows
    latest = series.all[-(screen.width - _SPARK_NOTE - 6) :]
    if not latest:
        return []
    heights, marks = Text("P99  "), Text("     ")
    for height, mark, out in glyphs.spark(latest, series.peak_s or 0.0):
        heights.append(height, screen.accent if out else "")
        marks.append(mark, screen.accent if out else "dim")
    heights.append(f"  peak {units.duration(series.peak_s)}", "dim")
    marks.append(f"  {series.band}, left it {units.clock(series.onset_unix_s)}", "dim")
    return [Text(), heights, marks]
