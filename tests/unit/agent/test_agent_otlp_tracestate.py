"""Randomness and threshold of consistent probability sampling, by the examples of the specification."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.otlp.tracestate import (
    MAX_THRESHOLD,
    adjusted_count,
    randomness,
    threshold,
    threshold_of,
    with_threshold,
    without_threshold,
)


@pytest.mark.parametrize(
    ("probability", "written"),
    [(1.0, "0"), (0.5, "8"), (1 / 3, "aaab"), (0.25, "c"), (0.2, "cccd"), (0.1, "e666"),
     (0.01, "fd70a"), (0.001, "ffbe77"), (1e-6, "ffffef39")],
)  # fmt: skip
def test_thresholds_are_written_as_the_specification_does(probability: float, written: str) -> None:
    """The table of the specification, with the four digits that it recommends."""
    assert with_threshold("", threshold_of(probability)) == f"ot=th:{written}"


@pytest.mark.parametrize(
    ("trace_state", "count"),
    [("", 1.0), ("ot=th:0", 1.0), ("ot=th:8", 2.0), ("ot=th:c", 4.0), ("x=y, ot=rv:00000000000001;th:c", 4.0),
     ("ot=th:", 1.0), ("ot=th:zz", 1.0), ("ot=th:000000000000000", 1.0), ("x=th:8", 1.0)],
)  # fmt: skip
def test_adjusted_count(trace_state: str, count: float) -> None:
    """A wrong or missing threshold counts as none."""
    assert adjusted_count(trace_state) == count


def test_randomness_is_explicit_or_the_end_of_the_trace_id() -> None:
    """`rv` goes before the last seven bytes; one of another length does not count."""
    trace_id = bytes(range(16))
    assert randomness(trace_id, "") == 0x090A0B0C0D0E0F
    assert randomness(trace_id, "ot=rv:0000000000abcd") == 0xABCD
    assert randomness(trace_id, "ot=rv:abcd") == 0x090A0B0C0D0E0F


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "ot=th:c"),
        ("ot=th:8", "ot=th:c"),
        ("a=b,ot=rv:00000000000001;th:8,c=d", "ot=rv:00000000000001;th:c,a=b,c=d"),
        ("a=b", "ot=th:c,a=b"),
        ("ot=" + "k:" + "x" * 250, "ot=" + "k:" + "x" * 250),
    ],
)
def test_a_threshold_is_set_beside_what_is_there(before: str, after: str) -> None:
    """Others' entries stay, ours moves to the front, and a list that would be too long stays as it is."""
    assert with_threshold(before, threshold_of(0.25)) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [("ot=th:8", ""), ("a=b,ot=rv:00000000000001;th:8", "a=b,ot=rv:00000000000001"), ("", "")],
)
def test_a_threshold_is_taken_out(before: str, after: str) -> None:
    """The rest stays."""
    assert without_threshold(before) == after


@given(st.floats(1e-9, 1.0, exclude_min=True))
def test_a_threshold_survives_writing(probability: float) -> None:
    """What is written is what is read, and its probability is that which was asked for."""
    value = threshold_of(probability)
    assert threshold(with_threshold("", value)) == value
    assert (MAX_THRESHOLD - value) / MAX_THRESHOLD == pytest.approx(probability, rel=0.001)


@given(st.text(max_size=60))
def test_any_text_is_read(trace_state: str) -> None:
    """A trace state of others never raises."""
    assert adjusted_count(trace_state) >= 1.0
    assert 0 <= randomness(bytes(16), trace_state) < MAX_THRESHOLD
