"""The report as Markdown for a ticket or a chat: GitHub tables, all data escaped."""

import re
from collections.abc import Sequence

from detector.model import Report
from detector.report import glyphs, text, units, view
from detector.report.view import CauseView, Fact, View

_BAR = 12
# Characters that begin markup anywhere; an underscore only does at the edge of a word.
_ACTIVE = re.compile(r"[\\`*\[\]<>|~&$]|(?<![^\W_])_|_(?![^\W_])")
_LINE_START = re.compile(r"^(?:#{1,6}(?=\s|$)|[-+](?=\s|$)|-{3,}|={2,}|\d+(?=[.)](?:\s|$)))")


def render(report: Report) -> str:
    """Render a report as Markdown."""
    shown = view.build(report)
    blocks = [
        *_head(shown),
        *_causes(shown),
        *_operations(shown),
        *_changes(shown),
        *_requests(shown),
        *_steps(shown),
        *_decided(shown),
    ]
    return "\n\n".join(blocks) + "\n"


def escape(data: str) -> str:
    """Make data plain text in Markdown, inside and outside tables."""
    escaped = _ACTIVE.sub(r"\\\g<0>", units.clean(data))
    return _LINE_START.sub(_escape_start, escaped)


def _escape_start(match: re.Match[str]) -> str:
    found = match.group(0)
    return f"{found}\\" if found.isdigit() else f"\\{found}"


def code(data: str) -> str:
    """Set data in a code span of a table's cell; backticks lengthen its fence."""
    # A table splits at pipes before it reads code spans, and takes this backslash away again.
    shown = units.clean(data).replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{shown}{pad}{fence}" if shown else ""


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], right: frozenset[int]) -> str:
    rule = ["---:" if index in right else "---" for index in range(len(heads))]
    lines = [heads, tuple(rule), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _head(shown: View) -> list[str]:
    report = shown.report
    return [
        f"# {shown.prose.badge}: {escape(shown.headline)}",
        f"**{escape(text.p99_sentence(report))}**",
        f"{shown.prose.meaning} {text.counts(report)}.",
    ]


def _causes(shown: View) -> list[str]:
    blocks = [f"## {shown.prose.causes}"]
    if shown.causes:
        rows = [_cause_row(cause) for cause in shown.causes]
        rows.append(("", text.UNEXPLAINED, "", *_share(shown.unexplained)))
        heads = ("#", "Cause", "Target", "Share of the excess", "")
        blocks.append(_table(heads, rows, frozenset({3})))
    else:
        blocks.append(shown.prose.no_cause)
    for cause in shown.causes:
        blocks += _cause(cause)
    gaps = [f"- {escape(gap)}" for gap in shown.missing]
    missing = "\n".join(gaps) if gaps else text.NOTHING_MISSING
    return [*blocks, f"### {text.MISSING_OVERALL}", missing]


def _share(share: view.Share) -> tuple[str, str]:
    return share.text.replace("<", "\\<"), glyphs.share_text(share, _BAR)


def _cause_row(cause: CauseView) -> tuple[str, ...]:
    tag = f" ({cause.tag})" if cause.tag else ""
    return (
        str(cause.rank),
        f"{escape(cause.title)}{tag}",
        code(cause.target),
        *_share(cause.share),
    )


def _cause(cause: CauseView) -> list[str]:
    rows = [_fact_row(text.EVIDENCE, fact) for fact in cause.evidence]
    rows += [_fact_row(text.COUNTER_EVIDENCE, fact) for fact in cause.counter_evidence]
    rows += [(text.MISSING, escape(gap), "", "", "") for gap in cause.missing]
    if not rows:
        return []
    heads = ("", "Statement", "Since", "Before", "Source")
    return [f"### {cause.rank}. {escape(cause.title)}", _table(heads, rows, frozenset({2, 3}))]


def _fact_row(side: str, fact: Fact) -> tuple[str, ...]:
    looked_up = code(f"{fact.source}: {fact.query}" if fact.query else fact.source)
    return side, escape(fact.statement), escape(fact.value), escape(fact.baseline), looked_up


def _operations(shown: View) -> list[str]:
    heading = f"## {text.OPERATIONS}"
    if not shown.operations:
        return [heading, text.NO_OPERATIONS]
    largest = max(abs(row.excess_s) for row in shown.operations)
    rows = [
        (
            escape(row.name),
            row.baseline,
            row.incident,
            row.excess,
            glyphs.excess_text(row.excess_s, largest, _BAR),
        )
        for row in shown.operations
    ]
    heads = ("Operation", "Before", "Since", "Excess", "")
    return [heading, _table(heads, rows, frozenset({1, 2, 3}))]


def _changes(shown: View) -> list[str]:
    heading = f"## {text.CHANGES}"
    if not shown.changes:
        return [heading, text.NO_CHANGES]
    rows = [
        (
            f"{units.clock(row.at_unix_s)}, {row.when}",
            escape(row.service),
            escape(row.version),
            code(row.revision),
            row.bearing,
        )
        for row in shown.changes
    ]
    return [
        heading,
        _table(("Time, UTC", "Service", "Version", "Git revision", "Bearing"), rows, frozenset()),
    ]


def _requests(shown: View) -> list[str]:
    heading = f"## {text.requests_heading(has_ledger=shown.has_ledger)}"
    rows = [_request_row(text.SLOW, request) for request in shown.slowest]
    rows += [_request_row(text.ORDINARY, request) for request in shown.ordinary]
    if not rows:
        return [heading, text.NO_REQUESTS]
    heads = ("", "Trace", "Revision", "Duration", text.requests_column(has_ledger=shown.has_ledger))
    return [heading, _table(heads, rows, frozenset({3}))]


def _request_row(kind: str, request: view.RequestRow) -> tuple[str, ...]:
    told = ", ".join(f"{part.label} {units.duration(part.seconds)}" for part in request.parts)
    return (
        kind,
        code(request.trace_id),
        code(request.revision),
        request.duration,
        escape(told) or units.UNKNOWN,
    )


def _steps(shown: View) -> list[str]:
    steps = [f"{number}. {escape(step.text)}" for number, step in enumerate(shown.steps, 1)]
    return [f"## {shown.prose.steps}", "\n".join(steps) if steps else text.NO_STEPS]


def _decided(shown: View) -> list[str]:
    report = shown.report
    rows = [
        (
            units.clock(window.start_unix_s),
            str(window.n),
            units.duration(window.p99_s),
            text.band(window).removeprefix("band "),
            str(window.exceedances),
            text.sigma(window),
        )
        for window in shown.windows.table
    ]
    heads = ("Window, UTC", "n", "P99", "Band", "Exceedances", "Residual")
    parameters = ", ".join(f"{name} {value}" for name, value in shown.parameters)
    note = (
        f"Incident {escape(report.incident.id)}; {escape(shown.windows.name)}; "
        f"{report.incident.window_s:g} s windows; {text.detection(report)}; {escape(parameters)}."
    )
    table = [_table(heads, rows, frozenset(range(1, 6)))] if rows else []
    return [f"## {text.DECIDED}", *table, note]
