"""The answer on the HTML page: verdict, how much slower and since when, the ranked causes."""

from detector.model import Verdict
from detector.report import bars, charts, text, units
from detector.report.markup import Markup, element, join
from detector.report.page import cell, instant, section
from detector.report.view import CauseView, Fact, View


def lead(shown: View) -> Markup:
    """Say the verdict, how much slower, and since when."""
    report = shown.report
    return element(
        "div",
        element("span", shown.prose.badge, class_="badge"),
        element("h1", shown.headline),
        element("p", shown.prose.meaning, class_="meaning"),
        *_settle(shown),
        _figures(shown),
        element(
            "figure",
            charts.p99_chart(shown.windows),
            element("figcaption", *_chart_legend(shown)) if shown.windows.all else Markup(""),
        ),
        class_="lead",
        data_verdict=report.verdict.value,
    )


def _settle(shown: View) -> list[Markup]:
    """Lead an inconclusive report with the first thing that would settle it."""
    if shown.report.verdict is not Verdict.INCONCLUSIVE:
        return []
    link = element("a", shown.prose.steps, href="#steps")
    return [element("p", link, f": {shown.steps[0].text}", class_="settle")]


def _figures(shown: View) -> Markup:
    report = shown.report
    ratio = units.factor(report.p99_before_s, report.p99_since_s)
    onset = report.incident.onset_unix_s
    return element(
        "dl",
        _figure(
            "P99 before", join(units.duration(report.p99_before_s)), text.SIGNALS[report.signal]
        ),
        _figure(
            "P99 since",
            join(units.duration(report.p99_since_s)),
            f"{ratio} as long" if ratio else "factor unknown",
            changed=True,
        ),
        _figure(
            "Since",
            instant(onset, f"{units.clock(onset)} UTC"),
            f"{units.date_and_clock(onset).split(' ', maxsplit=1)[0]}, {text.course(report)}",
        ),
        _figure(
            "Slow requests",
            join(f"{units.number(report.requests_slow)} of {units.number(report.requests_since)}"),
            f"{units.number(report.baseline_requests)} in the baseline",
        ),
        class_="figures",
    )


def _figure(name: str, value: Markup, note: str, *, changed: bool = False) -> Markup:
    return element(
        "div",
        element("dt", name),
        element("dd", value, element("small", note), class_="changed" if changed else None),
    )


def _chart_legend(shown: View) -> list[Markup]:
    def key(*marks: Markup) -> Markup:
        return element("svg", *marks, width="18", height="10", aria_hidden="true")

    line = {"x1": "0", "x2": "18", "y1": "5", "y2": "5"}
    return [
        element(
            "span", key(element("line", class_="observed", **line)), f"P99, {shown.windows.name}"
        ),
        element(
            "span", key(element("rect", width="18", height="10", class_="band")), "forecast band"
        ),
        element("span", key(element("line", class_="forecast", **line)), "forecast"),
        element("span", key(element("circle", cx="9", cy="5", r="4", class_="out")), "out of band"),
    ]


def causes(shown: View) -> Markup:
    """Rank the causes, each with evidence, counter-evidence and what was missing."""
    ranked = [_cause(cause) for cause in shown.causes]
    return section(
        shown.prose.causes,
        "share of the excess time, with its 90 % band",
        *(ranked or [element("p", shown.prose.no_cause, class_="none")]),
        _unexplained(shown),
        _missing_overall(shown),
    )


def _cause(cause: CauseView) -> Markup:
    tag = [element("span", cause.tag, class_="tag")] if cause.tag else []
    value, _, band = cause.share.text.partition(" (")
    return element(
        "article",
        element("div", str(cause.rank), class_="rank"),
        element(
            "div",
            element(
                "div",
                element("h3", cause.title, *tag),
                element("p", element("strong", value), f" ({band}" if band else ""),
                class_="title",
            ),
            element("p", element("code", cause.target), class_="target"),
            bars.share_bar(cause.share, f"Cause {cause.rank}, {cause.title}"),
            _facts(cause),
        ),
        class_="cause",
    )


def _facts(cause: CauseView) -> Markup:
    rows: list[Markup] = []
    if cause.evidence:
        rows += [
            _group(text.EVIDENCE, cause.evidence),
            *(_fact(fact, _side(fact)) for fact in cause.evidence),
        ]
    if cause.counter_evidence:
        rows += [
            _group(text.COUNTER_EVIDENCE, cause.counter_evidence),
            *(_fact(fact, "against") for fact in cause.counter_evidence),
        ]
    if cause.missing:
        rows.append(_group(text.MISSING, ()))
        rows += [element("tr", element("td", gap, colspan="3")) for gap in cause.missing]
    if not rows:
        return Markup("")
    return element("table", element("tbody", *rows), class_="facts stack")


def _group(name: str, facts: tuple[Fact, ...]) -> Markup:
    """Head a group of facts; columns are named where there is a number to read."""
    if not any(fact.value for fact in facts):
        return element("tr", element("th", name, colspan="3"), class_="group")
    return element(
        "tr",
        element("th", name),
        element("th", "since", class_="num"),
        element("th", "before", class_="num"),
        class_="group",
    )


def _side(fact: Fact) -> str:
    """Tell the side that evidence is on; a value that is unknown supports nothing."""
    return "open" if fact.value == units.UNKNOWN else "for"


def _fact(fact: Fact, kind: str) -> Markup:
    looked_up = [element("code", fact.source)] + (
        [element("code", fact.query)] if fact.query else []
    )
    return element(
        "tr",
        element("td", fact.statement, element("span", *looked_up, class_="query")),
        cell(fact.value, "since" if fact.value else "", "num"),
        cell(fact.baseline, "before" if fact.baseline else "", "num"),
        class_=kind,
    )


def _unexplained(shown: View) -> Markup:
    share = shown.unexplained
    return element(
        "div",
        element("div"),
        element(
            "div",
            element("p", element("span", text.UNEXPLAINED), element("span", share.text)),
            bars.share_bar(share, text.UNEXPLAINED),
        ),
        class_="unexplained",
    )


def _missing_overall(shown: View) -> Markup:
    if not shown.missing:
        body = element("p", text.NOTHING_MISSING, class_="soft")
    else:
        body = element("ul", *(element("li", gap) for gap in shown.missing))
    return element("div", element("h3", text.MISSING_OVERALL), body, class_="missing-data")
