"""The detail on the HTML page: operations, changes, requests, next steps, how it was decided."""

from detector.model import Verdict
from detector.report import bars, text, units
from detector.report.changes import ChangeRow, Stance
from detector.report.markup import Markup, element, join
from detector.report.page import cell, instant, section, table
from detector.report.view import OperationRow, RequestRow, View


def operations(shown: View) -> Markup:
    """Show own time of each operation before and since, and its excess."""
    if not shown.operations:
        return section(text.OPERATIONS, "", element("p", text.NO_OPERATIONS, class_="none"))
    largest = max(abs(row.excess_s) for row in shown.operations)
    columns = (
        ("Operation", ""),
        ("before", "num"),
        ("since", "num"),
        ("excess", "num"),
        ("", "wide"),
    )
    rows = [_operation(row, largest) for row in shown.operations]
    return section(text.OPERATIONS, text.OPERATIONS_NOTE, table(columns, rows, "stack"))


def _operation(row: OperationRow, largest_s: float) -> Markup:
    return element(
        "tr",
        cell(row.name),
        cell(row.baseline, "before", "num"),
        cell(row.incident, "since", "num"),
        cell(row.excess, "excess", "num"),
        cell(bars.excess_bar(row.excess_s, largest_s, f"{row.name}: {row.excess}"), class_="wide"),
    )


def changed(shown: View) -> Markup:
    """Show the latest changes of version and what they have to do with the causes."""
    if not shown.changes:
        return section(text.CHANGES, "", element("p", text.NO_CHANGES, class_="none"))
    columns = (
        ("Time", ""),
        ("Service", ""),
        ("Version", ""),
        ("Git revision", ""),
        ("Bearing", ""),
    )
    rows = [_change(row) for row in shown.changes]
    return section(text.CHANGES, "newest first", table(columns, rows, "stack"))


def _change(row: ChangeRow) -> Markup:
    at = instant(row.at_unix_s, f"{units.clock(row.at_unix_s)} UTC")
    supports = row.stance is Stance.SUPPORTS
    return element(
        "tr",
        element("td", at, element("br"), element("span", row.when, class_="soft"), class_="fixed"),
        cell(row.service, class_="service"),
        cell(row.version, class_="fixed"),
        cell(element("code", row.revision), class_="fixed"),
        cell(row.bearing, class_="stance" if supports else None),
    )


def requests(shown: View) -> Markup:
    """Set the slowest requests beside ordinary ones, on one scale."""
    both = (*shown.slowest, *shown.ordinary)
    if not both:
        return section(text.REQUESTS, "", element("p", text.NO_REQUESTS, class_="none"))
    longest = max(request.duration_s for request in both)
    legend = [element("li", bars.swatch(part), part.label) for part in shown.legend]
    rows = [_request(request, text.SLOW, longest) for request in shown.slowest]
    rows += [_request(request, text.ORDINARY, longest) for request in shown.ordinary]
    columns = (
        ("Trace", ""),
        ("Kind", ""),
        ("Revision", ""),
        ("Duration", "num"),
        (text.requests_column(has_ledger=shown.has_ledger), "wide"),
    )
    return section(
        text.requests_heading(has_ledger=shown.has_ledger),
        "same scale for all",
        element("ul", *legend, class_="legend"),
        table(columns, rows, "stack"),
    )


def _request(request: RequestRow, kind: str, longest_s: float) -> Markup:
    return element(
        "tr",
        element(
            "td",
            element("code", request.trace_id),
            element("br"),
            element("span", request.when, class_="soft"),
            class_="trace",
        ),
        cell(kind, class_="fixed"),
        cell(element("code", request.revision)),
        cell(request.duration, class_="num"),
        cell(bars.stacked_bar(request, longest_s), class_="wide"),
    )


def steps(shown: View) -> Markup:
    """Say what to do next; for an inconclusive report, what would settle it."""
    if not shown.steps:
        return section(
            shown.prose.steps, "", element("p", text.NO_STEPS, class_="none"), id_="steps"
        )
    many = len(shown.causes) > 1 or shown.report.verdict is Verdict.INCONCLUSIVE
    items = [
        element(
            "li",
            element(
                "span",
                step.text,
                element("span", f" cause {step.rank}", class_="soft") if many and step.rank else "",
            ),
        )
        for step in shown.steps
    ]
    return section(shown.prose.steps, "", element("ol", *items, class_="steps"), id_="steps")


def decided(shown: View) -> Markup:
    """Show the numbers behind the decision, small."""
    report = shown.report
    incident = report.incident
    analysed = (
        f"{units.date_and_clock(report.analysed_from_unix_s)} to "
        f"{units.clock(report.analysed_to_unix_s)} UTC"
    )
    facts = [
        ("Series", shown.windows.name),
        ("Also out of band", "; ".join(shown.windows.others) or "no other series"),
        ("Detection", text.detection(report)),
        ("Baseline from", units.date_and_clock(incident.baseline_start_unix_s)),
        ("Analysed", analysed),
        ("Window", f"{incident.window_s:g} s"),
        ("Service, model", f"{shown.service}, {shown.model}"),
        *shown.parameters,
        ("Report schema", str(report.schema)),
    ]
    pairs = [join(element("dt", name), element("dd", value)) for name, value in facts]
    return section(
        text.DECIDED,
        "",
        element("div", _window_table(shown), class_="scroll"),
        element("dl", *pairs),
        class_="decided",
    )


def _window_table(shown: View) -> Markup:
    names = ("Window, UTC", "n", "failed", "P99", "forecast", "band", "exceedances", "residual")
    columns = tuple((name, "num" if index else "") for index, name in enumerate(names))
    rows = []
    for window in shown.windows.table:
        values = (
            str(window.n),
            str(window.failures),
            units.duration(window.p99_s),
            units.duration(window.forecast_p99_s),
            text.band(window).removeprefix("band "),
            str(window.exceedances),
        )
        cells = [cell(value, class_="num") for value in values]
        rows.append(
            element(
                "tr",
                element("td", instant(window.start_unix_s, units.clock(window.start_unix_s))),
                *cells,
                cell(text.sigma(window), class_="num sigma"),
                class_="out" if window.out_of_band else None,
            )
        )
    return table(columns, rows, "windows")
