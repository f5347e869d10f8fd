"""What a run shows while it goes on."""

import io

import msgspec
from rich.console import Console

from detector.cli.demo import chart
from detector.cli.demo.chart import Ink
from detector.cli.demo.live import LiveView
from detector.cli.demo.observe import LoadProgress, Observed, Status
from detector.cli.demo.view import Phase, PlainView
from detector.model import WindowVerdict
from tests.support.demo_windows import KEY, window


def _ink(windows: list[WindowVerdict], columns: int = 60, rows: int = 8) -> list[list[Ink]]:
    cells, _ = chart.draw(windows, columns, rows)
    return [[ink for _, ink in row] for row in cells]


def _seen(windows: tuple[WindowVerdict, ...]) -> Observed:
    status = Status(spans=900, windows=20, baseline_progress=0.5)
    return Observed(status, windows, (), LoadProgress(10.0, 200, 195, 4, 1, 20.0))


def _frame(width: int, windows: tuple[WindowVerdict, ...], phase: Phase = Phase.WATCHING) -> str:
    console = Console(file=io.StringIO(), width=width, height=40, force_terminal=False)
    view = LiveView(console, "tailcause demo   chat[node-1 GPU-3]", lambda: 0.0)
    view.phase(phase, "watching the residual")
    view.show(_seen(windows))
    view.close()
    out = Console(file=io.StringIO(), width=width, force_terminal=False)
    out.print(view.frame())
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_a_steady_line_lies_in_its_band() -> None:
    """The dots of windows within the band are drawn on its shade."""
    inks = {ink for row in _ink([window(i) for i in range(10)]) for ink in row}

    assert {Ink.EMPTY, Ink.BAND, Ink.LINE_IN_BAND} == inks


def test_a_window_out_of_band_is_an_alarm_above_it() -> None:
    """The jump is higher than the band and in its own colour."""
    rows = _ink([*(window(i) for i in range(5)), window(5, 0.6, alarm=True)])

    highest_alarm = next(i for i, row in enumerate(rows) if Ink.ALARM in row)
    highest_band = next(i for i, row in enumerate(rows) if Ink.BAND in row)

    assert highest_alarm < highest_band


def test_the_latest_windows_are_shown_when_there_are_too_many() -> None:
    """The axis forgets an old peak with its window."""
    windows = [window(0, 9.0), *(window(i) for i in range(1, 200))]

    _, scale = chart.draw(windows, 60, 8)

    assert scale.high_s < 1.0


def test_a_band_that_reaches_far_down_does_not_flatten_the_line() -> None:
    """The axis follows the P99s and the upper edge; the band is cut off below."""
    deep = [msgspec.structs.replace(window(i), lower_s=0.001) for i in range(10)]

    _, scale = chart.draw(deep, 60, 8)

    assert scale.low_s > 0.04


def test_nothing_is_drawn_before_there_is_something() -> None:
    """An empty chart is no error."""
    assert {Ink.EMPTY} == {ink for row in _ink([]) for ink in row}


def test_a_window_without_requests_is_a_gap() -> None:
    """No request has no P99, not one of zero."""
    assert _ink([window(0), window(1)]) == _ink([window(0), window(9, 0.0, n=0), window(1)])


def test_every_row_of_the_chart_has_the_same_width() -> None:
    """Whatever is drawn."""
    cells, _ = chart.draw([window(i, 0.05 * (i + 1)) for i in range(70)], 130, 8)

    assert {130} == {len(row) for row in cells}


def test_the_live_view_shows_the_numbers_and_hides_the_fault() -> None:
    """P99, band, residual, n, rate and rejections are there; when the fault goes in is not."""
    text = _frame(100, (window(0), window(1, 0.5, alarm=True)))

    wanted = ("P99 500 ms", "forecast 100 ms", "band 80-130 ms", "+5.1", "n 40", "20.0 requests/s",
              "195 ok", "4 rejected", "hidden until the report")  # fmt: skip
    assert [part for part in wanted if part not in text] == []


def test_the_live_view_keeps_brackets_in_names() -> None:
    """Data is not markup."""
    assert "chat[node-1 GPU-3]" in _frame(100, ())


def test_the_live_view_fits_a_narrow_terminal() -> None:
    """No line is longer than the terminal."""
    assert max(len(line) for line in _frame(70, (window(0),)).splitlines()) <= 70


def test_the_live_view_needs_no_window_yet() -> None:
    """The first seconds have none."""
    assert "no window has closed yet" in _frame(90, (), Phase.START)


def test_plain_lines_come_with_each_phase_and_every_ten_seconds() -> None:
    """In between the log stays quiet."""
    now = iter([0.0, 1.0, 5.0, 10.5, 11.0, 11.0])
    out = io.StringIO()
    view = PlainView(out, lambda: next(now))

    view.phase(Phase.BASELINE, "learning")
    view.show(_seen((window(0),)))
    view.show(_seen((window(0),)))
    view.show(_seen((window(0),)))
    view.close()

    assert [line[:19] for line in out.getvalue().splitlines()] == [
        "[  1.0 s] baseline ",
        "[ 11.0 s] baseline ",
    ]


def test_a_plain_line_tells_the_numbers() -> None:
    """One line holds what the live view shows."""
    now = iter([0.0, 20.0, 20.0])
    out = io.StringIO()

    PlainView(out, lambda: next(now)).show(_seen((window(0),)))

    assert "P99 100 ms (forecast 100)" in out.getvalue()
    assert "195 ok, 4 rejected, 1 failed" in out.getvalue()


def test_the_key_of_the_windows_is_the_service_as_a_whole() -> None:
    """The views show all replicas together."""
    assert KEY.replica == ""
