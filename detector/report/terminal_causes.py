"""The ranked causes on the terminal: share, evidence, counter-evidence, what was missing."""

from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from detector.report import glyphs, text, units
from detector.report.screen import Screen
from detector.report.view import CauseView, Fact, Share, View

_CAUSES = 4
_FOR, _AGAINST, _GAP = "+", units.MINUS, "?"
_BAR, _NARROW_BAR = 16, 10
_FIRST, _OTHERS = (4, 2, 2), (1, 1, 1)
"""How many pieces of evidence, counter-evidence and gaps a cause shows, by rank."""


@dataclass(frozen=True)
class Columns:
    """Widths of the two columns of numbers."""

    value: int
    before: int


def blocks(shown: View, screen: Screen) -> list[RenderableType]:
    """Lay out the causes; the first in detail, the others by their strongest statements."""
    found: list[RenderableType] = [screen.heading(shown.prose.causes, "share of the excess time")]
    if not shown.causes:
        found.append(Text(shown.prose.no_cause))
    columns = _columns(shown.causes[:_CAUSES])
    for cause in shown.causes[:_CAUSES]:
        found += _cause(cause, columns, screen)
    if left_out := text.more(len(shown.causes) - _CAUSES, "of small share"):
        found.append(Text(f"  {left_out}", "dim"))
    found.append(_title("", Text(text.UNEXPLAINED, "dim"), shown.unexplained, screen))
    return found + _missing(shown, screen)


def _cause(cause: CauseView, columns: Columns, screen: Screen) -> list[RenderableType]:
    title = Text().append(cause.title, "bold" if cause.rank == 1 else "")
    target = units.short_revision(cause.target)
    if target not in cause.title:
        title.append(f"  {target}", "dim")
    if cause.tag:
        title.append(f"  ({cause.tag})", "dim")
    return [
        _title(str(cause.rank), title, cause.share, screen),
        _facts(cause, columns, screen),
    ]


def _title(rank: str, title: Text, share: Share, screen: Screen) -> RenderableType:
    width = _BAR if screen.wide else _NARROW_BAR
    grid = screen.grid(1, 0, width, -18)
    full, upto = glyphs.share_bar(share, width)
    bar = Text()
    bar.append(glyphs.FULL * full, screen.accent if rank else "dim")
    bar.append(glyphs.MAYBE * (upto - full), "dim")
    grid.add_row(Text(rank, "bold"), title, bar, Text(share.text, "bold" if rank == "1" else ""))
    return grid


def _facts(cause: CauseView, columns: Columns, screen: Screen) -> RenderableType:
    """List statements with value and baseline; `+` supports the cause, a minus sign speaks against it."""
    limits = _FIRST if cause.rank == 1 else _OTHERS
    grid = screen.grid(1, 1, 0, -columns.value, -columns.before)
    for fact in cause.evidence[: limits[0]]:
        open_ = fact.value == units.UNKNOWN
        sign = Text(_GAP, "bold") if open_ else Text(_FOR, screen.accent)
        grid.add_row("", sign, *_fact(fact))
    for fact in cause.counter_evidence[: limits[1]]:
        grid.add_row("", Text(_AGAINST, "bold"), *_fact(fact))
    for gap in cause.missing[: limits[2]]:
        grid.add_row("", Text(_GAP, "bold"), Text(f"missing: {gap}"))
    groups = (cause.evidence, cause.counter_evidence, cause.missing)
    hidden = sum(max(len(g) - limit, 0) for g, limit in zip(groups, limits, strict=True))
    if hidden:
        grid.add_row("", "", Text(text.more(hidden, "in the full report"), "dim"))
    return grid


def _fact(fact: Fact) -> tuple[Text, Text, Text]:
    return Text(fact.statement), Text(fact.value, "bold"), Text(_before(fact), "dim")


def _before(fact: Fact) -> str:
    return f"before {fact.baseline}" if fact.baseline else ""


def _columns(causes: tuple[CauseView, ...]) -> Columns:
    """Make the columns of numbers as wide as the numbers, the same for all causes."""
    facts = [fact for cause in causes for fact in (*cause.evidence, *cause.counter_evidence)]
    return Columns(
        value=min(max((cell_len(fact.value) for fact in facts), default=1), 20) or 1,
        before=min(max((cell_len(_before(fact)) for fact in facts), default=1), 26) or 1,
    )


def _missing(shown: View, screen: Screen) -> list[RenderableType]:
    """Name what data was missing to the analysis as a whole."""
    grid = screen.grid(1, 0)
    for gap in shown.missing[:3]:
        grid.add_row(Text(_GAP, "bold"), Text(f"missing: {gap}"))
    if left_out := text.more(len(shown.missing) - 3, "gaps in the full report"):
        grid.add_row("", Text(left_out, "dim"))
    return [grid] if shown.missing else []
