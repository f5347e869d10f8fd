"""The HTML page is safe, self-contained and accessible."""

import math
import re
from html.parser import HTMLParser

import msgspec
import pytest

from detector.model import (
    Change,
    Evidence,
    OperationShare,
    Report,
    SeriesKey,
    Signal,
    SlowRequest,
    Verdict,
)
from detector.report import html
from detector.report.markup import Markup, element, join

HOSTILE = """<script>alert(1)</script>" onload='x' `|&[bold]\x1b[31m</style>"""


def hostile(report: Report) -> Report:
    """Put hostile text into every field that holds data."""
    evidence = Evidence(HOSTILE, HOSTILE, HOSTILE, value=1.0, unit=HOSTILE)
    cause = msgspec.structs.replace(
        report.causes[0],
        kind=HOSTILE,
        target=HOSTILE,
        title=HOSTILE,
        evidence=(evidence,),
        counter_evidence=(evidence,),
        missing=(HOSTILE,),
        next_steps=(HOSTILE,),
    )
    key = SeriesKey(HOSTILE, HOSTILE, HOSTILE, Signal.TTFT)
    incident = msgspec.structs.replace(
        report.incident,
        id=HOSTILE,
        service=HOSTILE,
        model=HOSTILE,
        series=(key,),
        windows=tuple(msgspec.structs.replace(w, key=key) for w in report.incident.windows),
        parameters={HOSTILE: HOSTILE},
    )
    request = SlowRequest(HOSTILE, report.incident.onset_unix_s, 1.0, HOSTILE, {HOSTILE: 0.9})
    return msgspec.structs.replace(
        report,
        incident=incident,
        headline=HOSTILE,
        causes=(cause,),
        operations=(OperationShare(HOSTILE, 0.1, 0.2, 0.1),),
        changes=(Change(0.0, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
        slowest=(request,),
        missing=(HOSTILE,),
    )


class _Page(HTMLParser):
    """Collects elements and checks that they nest."""

    VOID = frozenset({"meta", "br", "hr"})

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.pop()


def test_hostile_names_do_not_become_elements(report: Report) -> None:
    """Data can neither open an element nor add an attribute."""
    before, after = _Page(html.render(report)), _Page(html.render(hostile(report)))
    allowed = {tag for tag, _ in before.tags} | {"br", "ul", "li", "circle"}
    assert (set(), set()) == (
        {tag for tag, _ in after.tags} - allowed,
        {name for _, attributes in after.tags for name in attributes if name.startswith("on")},
    )


def test_control_characters_do_not_reach_the_page(report: Report) -> None:
    """An escape sequence in a name is made visible, not passed on."""
    assert "\x1b" not in html.render(hostile(report))


@pytest.mark.parametrize("change", [{}, {"verdict": Verdict.DEMAND}, {"causes": ()}])
def test_elements_nest(report: Report, change: dict[str, object]) -> None:
    """Every element that is opened is closed in order."""
    assert _Page(html.render(msgspec.structs.replace(report, **change))).open == []


def test_the_page_fetches_nothing(report: Report) -> None:
    """No address, no script, no link that leaves the page."""
    page = _Page(html.render(report))
    fetching = {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    addresses = [a[k] for _, a in page.tags for k in ("src", "href", "srcset", "action") if k in a]
    css = html.render(report).partition("<style>")[2].partition("</style>")[0]
    assert (set(), [], []) == (
        {tag for tag, _ in page.tags} & fetching,
        [address for address in addresses if not str(address).startswith("#")],
        re.findall(r"url\(|@import|@font-face", css),
    )


def test_every_picture_says_what_it_shows(report: Report) -> None:
    """Each SVG is hidden from a screen reader or names itself."""
    pictures = [a for tag, a in _Page(html.render(report)).tags if tag == "svg"]
    assert [
        a
        for a in pictures
        if a.get("aria-hidden") != "true" and not {"aria-label", "aria-labelledby"} & a.keys()
    ] == []


def test_labels_of_pictures_exist(report: Report) -> None:
    """A picture's label points at elements of the page, and ids are unique."""
    tags = _Page(html.render(report)).tags
    ids = [a["id"] for _, a in tags if "id" in a]
    wanted = {i for _, a in tags for i in str(a.get("aria-labelledby") or "").split()}
    assert (set(), len(ids)) == (wanted - set(ids), len(set(ids)))


def test_times_are_utc_for_machines(report: Report) -> None:
    """The onset stands in a time element."""
    times = [a["datetime"] for tag, a in _Page(html.render(report)).tags if tag == "time"]
    assert "2026-12-01T03:12:44.000Z" in times


def test_unknown_values_draw_no_line(report: Report) -> None:
    """A window without a P99 leaves a gap instead of a zero."""
    windows = list(report.incident.windows)
    windows[2] = msgspec.structs.replace(windows[2], n=0, p99_s=math.nan)
    incident = msgspec.structs.replace(report.incident, windows=tuple(windows))
    page = html.render(msgspec.structs.replace(report, incident=incident))
    assert (page.count('class="observed"') - 1, page.count("nan")) == (2, 0)


def test_a_report_of_unknowns_still_renders(report: Report) -> None:
    """Nothing at all is known, and the page says so."""
    incident = msgspec.structs.replace(
        report.incident,
        service="",
        model="",
        onset_unix_s=math.nan,
        windows=(),
        series=(),
        parameters={},
    )
    bare = msgspec.structs.replace(
        report,
        incident=incident,
        verdict=Verdict.INCONCLUSIVE,
        headline="",
        p99_before_s=math.nan,
        p99_since_s=math.nan,
        causes=(),
        unexplained_share=math.nan,
    )
    page = html.render(bare)
    assert ("unknown" in page, "nan" in page) == (True, False)


def test_a_plain_string_is_escaped_and_markup_is_not() -> None:
    """Escaping is the default; only what was built as an element passes."""
    assert element("p", "<b>", element("br"), title='"') == '<p title="&quot;">&lt;b&gt;<br></p>'


def test_joined_strings_are_escaped() -> None:
    """Joining does not launder data into markup."""
    assert Markup("&lt;i&gt;") == join("<i>")
