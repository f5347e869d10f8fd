"""The terminal report below the causes: operations, changes, requests, steps, how it was decided."""

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from detector.report import glyphs, text, units
from detector.report.changes import Stance
from detector.report.screen import Screen
from detector.report.view import RequestRow, View

_OPERATIONS, _CHANGES, _SLOW, _ORDINARY, _STEPS = 4, 2, 3, 2, 4
_PART_STYLES = ("blue", "yellow", "green", "magenta", "cyan", "dim", "dim")
_WINDOW_CELL = 6
_LABEL = 12


def operations(shown: View, screen: Screen) -> list[RenderableType]:
    """Show own time per operation, before and since, the largest excess first."""
    heading = screen.heading(text.OPERATIONS, text.OPERATIONS_NOTE)
    if not shown.operations:
        return [heading, Text(text.NO_OPERATIONS)]
    largest = max(abs(row.excess_s) for row in shown.operations)
    grid = screen.grid(24, -8, 1, -8, -9, 0)
    # Below 1 % of the largest excess no bar shows; the largest itself always stays.
    visible = [row for row in shown.operations if abs(row.excess_s) >= 0.01 * largest]
    for row in visible[:_OPERATIONS]:
        bar = glyphs.excess_text(row.excess_s, largest, max(screen.width - 60, 10))
        grid.add_row(
            Text(row.name),
            Text(row.baseline, "dim"),
            Text("→", "dim"),
            Text(row.incident),
            Text(row.excess, "bold"),
            Text(bar, screen.accent if row.excess_s > 0 else "dim"),
        )
    return [heading, grid]


def changes(shown: View, screen: Screen) -> list[RenderableType]:
    """Show the latest changes and what they have to do with the causes."""
    heading = screen.heading(text.CHANGES, "UTC, newest first")
    if not shown.changes:
        return [heading, Text(text.NO_CHANGES)]
    found: list[RenderableType] = [heading]
    for row in shown.changes[:_CHANGES]:
        line = Text(f"{units.clock(row.at_unix_s)}  ")
        line.append(row.service, "bold").append(f"  {row.version}  ")
        line.append(row.revision, "bold").append(f"  {row.when}", "dim")
        found.append(line)
        if row.stance is Stance.NONE:
            line.append(f"; {row.bearing}", "dim")
        else:
            style = screen.accent if row.stance is Stance.SUPPORTS else ""
            found.append(Text(f"          {row.bearing}", style))
    if left_out := text.more(len(shown.changes) - _CHANGES, "in the full report"):
        found.append(Text(f"          {left_out}", "dim"))
    return found


def requests(shown: View, screen: Screen) -> list[RenderableType]:
    """Set the slowest requests beside ordinary ones, on one scale."""
    slow, usual = shown.slowest[:_SLOW], shown.ordinary[:_ORDINARY]
    heading = screen.heading(
        text.requests_heading(has_ledger=shown.has_ledger), "same scale for all"
    )
    if not slow and not usual:
        return [heading, Text(text.NO_REQUESTS)]
    longest = max(request.duration_s for request in (*slow, *usual))
    legend = Text()
    for part in shown.legend:
        legend.append(f"{glyphs.PARTS[part.slot]} ", _PART_STYLES[part.slot])
        legend.append(f"{part.label}   ", "dim")
    grid = screen.grid(8, 32, 7, -7, 0)
    for kind, group in ((text.SLOW, slow), (text.ORDINARY, usual)):
        for request in group:
            _request(grid, request, kind, (longest, screen.width - 59))
    return [heading, legend, grid]


def _request(grid: Table, request: RequestRow, kind: str, scale: tuple[float, int]) -> None:
    bar = Text()
    for part, cells in glyphs.parts_cells(request.parts, *scale):
        bar.append(glyphs.PARTS[part.slot] * cells, _PART_STYLES[part.slot])
    grid.add_row(
        Text(kind, "dim"),
        Text(request.trace_id),
        Text(request.revision, "dim"),
        Text(request.duration, "bold"),
        bar,
    )


def steps(shown: View, screen: Screen) -> list[RenderableType]:
    """Say what to do next; for an inconclusive report, what would settle it."""
    heading = screen.heading(shown.prose.steps)
    if not shown.steps:
        return [heading, Text(text.NO_STEPS)]
    grid = screen.grid(2, 0)
    for number, step in enumerate(shown.steps[:_STEPS], 1):
        grid.add_row(Text(f"{number}.", screen.accent), Text(step.text))
    if left_out := text.more(len(shown.steps) - _STEPS, "in the full report"):
        grid.add_row("", Text(left_out, "dim"))
    return [heading, grid]


def decided(shown: View, screen: Screen) -> list[RenderableType]:
    """Show the numbers behind the decision, quietly."""
    report = shown.report
    incident_id = units.clean(report.incident.id)
    room = (screen.width - _LABEL) // (_WINDOW_CELL + 1)
    windows = shown.windows.table[:room]
    grid = screen.grid(_LABEL, *(-_WINDOW_CELL for _ in windows), 0)
    rows = (
        ("n", [str(window.n) for window in windows]),
        ("exceedances", [str(window.exceedances) for window in windows]),
        ("residual", [text.sigma(window) for window in windows]),
    )
    for name, values in rows:
        cells = [
            Text(value, screen.accent if window.out_of_band and name == "residual" else "dim")
            for value, window in zip(values, windows, strict=True)
        ]
        grid.add_row(Text(name, "dim"), *cells)
    parameters = ", ".join(f"{name} {value}" for name, value in shown.parameters)
    notes = (
        f"{shown.windows.name}; {report.incident.window_s:g} s windows; {text.detection(report)}"
    )
    return [
        screen.heading(text.DECIDED, text.full_report(report) if screen.wide else incident_id),
        *([grid] if windows else []),
        Text(notes, "dim"),
        Text(parameters, "dim"),
    ]
