"""Canonical JSON."""

import json
import math

from msgspec.json import decode

from detector.model import Report
from detector.report.canonical import dumps


def test_keys_are_sorted_at_every_depth() -> None:
    """The order of insertion leaves no trace."""
    assert dumps({"b": {"d": 1, "c": 2}, "a": 0}) == b'{"a":0,"b":{"c":2,"d":1}}'


def test_floats_keep_six_significant_digits() -> None:
    """Noise below the sixth digit cannot make two runs differ."""
    assert dumps([0.123456789, 123456789.5, 1e-9 / 3]) == b"[0.123457,123457000.0,3.33333e-10]"


def test_integers_are_exact() -> None:
    """Counts are not rounded."""
    assert dumps([123456789]) == b"[123456789]"


def test_instants_keep_their_microseconds() -> None:
    """Six digits of a Unix time would be hours wide."""
    assert dumps({"onset_unix_s": 1796094764.1234567}) == b'{"onset_unix_s":1796094764.123457}'


def test_what_is_not_a_number_becomes_null() -> None:
    """JSON has no NaN and no infinity."""
    assert dumps([math.nan, math.inf, -math.inf]) == b"[null,null,null]"


def test_negative_zero_becomes_zero() -> None:
    """A sign that no one can see must not change the bytes."""
    assert dumps([-0.0]) == b"[0.0]"


def test_rounding_twice_changes_nothing(report: Report) -> None:
    """Canonical JSON read back is canonical."""
    once = dumps(report)
    assert once == dumps(json.loads(once))


def test_a_report_reads_back(report: Report) -> None:
    """What the interface hands out decodes into the same report."""
    assert report == decode(dumps(report), type=Report)
