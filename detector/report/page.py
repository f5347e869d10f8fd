"""What all sections of the HTML page are made of."""

from detector.report import units
from detector.report.markup import Markup, element, join


def section(
    title: str, note: str, *body: str, class_: str | None = None, id_: str | None = None
) -> Markup:
    """Build a section with its heading and a quiet note beside it."""
    heading = [element("h2", title)] + ([element("p", note)] if note else [])
    return element("section", element("header", *heading), *body, class_=class_, id=id_)


def instant(unix_s: float, shown: str) -> Markup:
    """Build a `<time>` in UTC; plain text where the instant is unknown."""
    machine = units.iso(unix_s)
    return element("time", shown, datetime=machine) if machine else join(shown)


def table(columns: tuple[tuple[str, str], ...], rows: list[Markup], class_: str) -> Markup:
    """Build a table from (heading, class) pairs and rows."""
    heads = [element("th", name, scope="col", class_=kind or None) for name, kind in columns]
    return element(
        "table",
        element("thead", element("tr", *heads)),
        element("tbody", *rows),
        class_=class_,
    )


def cell(value: str, label: str = "", class_: str | None = None) -> Markup:
    """Build a cell; the label stands beside the value where a narrow screen drops the headings."""
    return element("td", value, data_label=label or None, class_=class_)
