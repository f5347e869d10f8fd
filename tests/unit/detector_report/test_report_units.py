"""How values read."""
# ruff: noqa: RUF001 - reports are typeset with en dashes, minus and multiplication signs

import math

import pytest

from detector.report import units


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "0 s"),
        (0.0000125, "12.5 µs"),
        (0.0021, "2.10 ms"),
        (0.212, "212 ms"),
        (0.99949, "999 ms"),
        (0.9996, "1.00 s"),
        (9.4172, "9.42 s"),
        (119.9, "120 s"),
        (125.0, "2 min 05 s"),
        (7384.0, "2 h 03 min"),
        (-0.0032, "−3.20 ms"),
        (math.nan, "unknown"),
        (None, "unknown"),
    ],
)
def test_duration_reads_in_its_best_unit(seconds: float | None, expected: str) -> None:
    """Three significant digits in the unit that fits."""
    assert expected == units.duration(seconds)


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (9.4172, "s", "9.42 s"),
        (0.944, "1", "94.4 %"),
        (0.35, "{cpu}", "0.35 CPUs"),
        (52.3, "{req}/s", "52.3 req/s"),
        (3 * 2**30, "By", "3 GiB"),
        (0.0, "By", "0 B"),
        (4.31, "x", "×4.31"),
        (12345.0, "", "12\N{NO-BREAK SPACE}345"),
        (71.0, "Cel", "71 °C"),
        (None, "s", "unknown"),
        (math.inf, "1", "unknown"),
    ],
)
def test_quantity_reads_as_people_write_it(value: float | None, unit: str, expected: str) -> None:
    """UCUM units become what a reader expects."""
    assert expected == units.quantity(value, unit)


@pytest.mark.parametrize(
    ("share", "low", "high", "expected"),
    [
        (0.62, 0.55, 0.70, "62 % (55–70 %)"),
        (0.003, 0.0, 0.02, "<1 % (0–2 %)"),
        (0.17, math.nan, math.nan, "17 %"),
        (math.nan, 0.0, 1.0, "unknown"),
    ],
)
def test_share_reads_with_its_band(share: float, low: float, high: float, expected: str) -> None:
    """A share never stands without its uncertainty where that is known."""
    assert expected == units.share_with_band(share, low, high)


@pytest.mark.parametrize(
    ("before", "since", "expected"),
    [(0.212, 1.0388, "4.9 times"), (0.01, 0.2, "20 times"), (0.0, 1.0, ""), (math.nan, 1.0, "")],
)
def test_factor_is_left_out_where_it_is_not_defined(
    before: float, since: float, expected: str
) -> None:
    """No factor is invented over an unknown or zero baseline."""
    assert expected == units.factor(before, since)


@pytest.mark.parametrize(
    ("offset_s", "expected"),
    [
        (-14.2, "14 s before the onset"),
        (-0.8, "0.8 s before the onset"),
        (0.0, "at the onset"),
        (9.31, "9.3 s after the onset"),
        (-3610.0, "60 min 10 s before the onset"),
    ],
)
def test_times_read_relative_to_the_onset(offset_s: float, expected: str) -> None:
    """What matters at night is before or after."""
    assert expected == units.relative(1e9 + offset_s, 1e9)


@pytest.mark.parametrize("unix_s", [math.nan, math.inf, 1e20])
def test_an_impossible_instant_is_unknown(unix_s: float) -> None:
    """A broken clock does not break the report."""
    assert (
        units.clock(unix_s),
        units.date_and_clock(unix_s),
        units.iso(unix_s),
    ) == ("unknown", "unknown", "")


@pytest.mark.parametrize(
    ("revision", "expected"),
    [
        ("9a8b7c6d5e4f30211203948576aabbccddeeff00", "9a8b7c6"),
        ("release-12", "release-12"),
        ("", "unknown"),
    ],
)
def test_only_git_hashes_are_cut(revision: str, expected: str) -> None:
    """Seven digits name a commit; a tag keeps its name."""
    assert expected == units.short_revision(revision)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("a\x1b[31mb", "a\ufffd[31mb"),
        ("two\r\nlines\t", "two  lines"),
        ("left\u202eright", "left\ufffdright"),
        ("\ud800", "\ufffd"),
    ],
)
def test_data_becomes_one_safe_line(raw: str, expected: str) -> None:
    """Escapes, line breaks and invisible characters in data cannot steer a terminal or a page."""
    assert expected == units.clean(raw)
