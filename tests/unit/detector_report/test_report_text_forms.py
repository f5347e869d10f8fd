"""The terminal and Markdown forms."""

import re

import msgspec
import pytest
from rich.cells import cell_len

from detector.model import Report, SlowRequest, Verdict
from detector.report import glyphs, markdown, terminal
from detector.report.view import Part

HOSTILE = "[node-1 GPU-3] [bold red]x[/] :smile: \x1b[31m a|b `c` <i> *d* _e_ \u202e"


def _named(report: Report, name: str) -> Report:
    cause = msgspec.structs.replace(report.causes[0], target=name, title=name)
    return msgspec.structs.replace(report, headline=name, causes=(cause,), missing=(name,))


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal(report: Report, width: int) -> None:
    """Long data wraps; nothing runs over the edge."""
    lines = terminal.render(_named(report, "long name " * 30), width, color=False).splitlines()
    assert [line for line in lines if cell_len(line) > width] == []


def test_a_narrow_terminal_gets_the_narrowest_layout(report: Report) -> None:
    """Below sixty columns the layout no longer shrinks."""
    assert terminal.render(report, 60, color=False) == terminal.render(report, 10, color=False)


def test_brackets_in_names_survive(report: Report) -> None:
    """Data is not read as console markup or emoji."""
    shown = terminal.render(_named(report, HOSTILE), 160, color=False)
    assert "[node-1 GPU-3] [bold red]x[/] :smile: \ufffd[31m a|b" in shown


@pytest.mark.parametrize("name", ["plain", HOSTILE])
def test_without_colour_there_is_no_escape_code(report: Report, name: str) -> None:
    """A log file or a pipe gets plain text."""
    assert "\x1b" not in terminal.render(_named(report, name), 100, color=False)


def test_colour_changes_no_word(report: Report) -> None:
    """With its codes taken out the coloured report is the plain one."""
    coloured = terminal.render(report, 100, color=True)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    trimmed = "".join(f"{line.rstrip()}\n" for line in plain.splitlines())
    assert (True, terminal.render(report, 100, color=False)) == ("\x1b[" in coloured, trimmed)


def test_the_environment_does_not_change_the_report(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Width and colour are arguments, never guessed."""
    expected = terminal.render(report, 100, color=True)
    for name, value in {"COLUMNS": "40", "NO_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    assert expected == terminal.render(report, 100, color=True)


def test_samples_are_legible_without_colour(report: Report) -> None:
    """Windows out of band carry a mark, not only a colour."""
    assert "────▲▲▲" in terminal.render(report, 100, color=False)


@pytest.mark.parametrize(
    ("raw", "escaped"),
    [
        ("a|b", r"a\|b"),
        ("`x`", r"\`x\`"),
        ("<script>", r"\<script\>"),
        ("*b* [l](u)", r"\*b\* \[l\](u)"),
        ("_edge_ in_word", r"\_edge\_ in_word"),
        ("# title", r"\# title"),
        ("1. item", r"1\. item"),
        ("9.42 s", "9.42 s"),
        ("+509 ms", "+509 ms"),
    ],
)
def test_markdown_data_is_plain_text(raw: str, escaped: str) -> None:
    """Whatever would begin markup is escaped, and nothing else."""
    assert escaped == markdown.escape(raw)


@pytest.mark.parametrize(
    ("raw", "span"),
    [("a", "`a`"), ("a`b", "`` a`b ``"), ("a``b", "``` a``b ```"), ("a|b", r"`a\|b`"), ("", "")],
)
def test_markdown_code_keeps_backticks_and_pipes(raw: str, span: str) -> None:
    """The fence is longer than any run inside it, and a pipe does not end the cell."""
    assert span == markdown.code(raw)


def test_markdown_tables_stay_rectangular_with_hostile_data(report: Report) -> None:
    """A pipe in a name adds no column."""
    lines = markdown.render(_named(report, HOSTILE)).splitlines()
    tables = [len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("|")]
    rules = [len(re.findall(r"\|", line)) for line in lines if line.startswith("| ---")]
    assert set(tables) == set(rules)


@pytest.mark.parametrize(
    "render", [markdown.render, lambda r: terminal.render(r, 100, color=False)]
)
def test_demand_reads_as_a_capacity_notice(report: Report, render: object) -> None:
    """Nobody is told of a fault that is none."""
    assert callable(render)
    shown = render(msgspec.structs.replace(report, verdict=Verdict.DEMAND, causes=()))
    assert (
        "capacity notice" in shown.lower(),
        "This is not a fault." in shown,
        "A fault explains" in shown,
    ) == (True, True, False)


def test_bar_cells_never_exceed_the_whole() -> None:
    """Rounding each part alone would make bars of unequal length."""
    parts = [Part(str(index), 1 / 7, index) for index in range(7)]
    assert sum(cells for _, cells in glyphs.parts_cells(parts, 1.0, 10)) == 10


def test_a_request_without_operations_is_unknown_in_markdown(report: Report) -> None:
    """No split is invented."""
    request = SlowRequest("t1", 0.0, 0.0, "", {})
    shown = markdown.render(msgspec.structs.replace(report, slowest=(request,)))
    assert "| slow | `t1` | `unknown` | 0 s | unknown |" in shown
