"""The report as one self-contained page: inline style and SVG, no script, nothing fetched."""

from detector.model import Report
from detector.report import page_answer, page_detail, style, view
from detector.report.markup import Markup, element

# No script may run and nothing may be fetched, even if data should ever slip through as markup.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(report: Report) -> str:
    """Render a report as an HTML document."""
    shown = view.build(report)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{shown.prose.badge}: {shown.headline}"),
        element("style", Markup(style.sheet(report.verdict.value))),
    )
    body = element("body", element("main", _top(shown), *_sections(shown)))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _top(shown: view.View) -> Markup:
    return element(
        "div",
        element("p", element("b", "tailcause"), " latency report"),
        element("p", element("code", shown.report.incident.id)),
        class_="top",
    )


def _sections(shown: view.View) -> tuple[Markup, ...]:
    return (
        page_answer.lead(shown),
        page_answer.causes(shown),
        page_detail.operations(shown),
        page_detail.changed(shown),
        page_detail.requests(shown),
        page_detail.steps(shown),
        page_detail.decided(shown),
    )
