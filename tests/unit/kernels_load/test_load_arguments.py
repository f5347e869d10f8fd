"""Words of the command line that become numbers and settings."""

import argparse

import pytest

from kernels.supervisor.arguments import duration_s, key_value


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), ("30s", 30), ("500ms", 0.5), ("2m", 120), ("1h", 3600)]
)
def test_durations_take_units(text: str, expected: float) -> None:
    """Seconds without one."""
    assert duration_s(text) == expected


@pytest.mark.parametrize("text", ["", "s", "-1s", "0", "inf", "nan", "1d", "3 weeks"])
def test_other_durations_are_refused(text: str) -> None:
    """The message shows what is meant."""
    with pytest.raises(argparse.ArgumentTypeError, match="30s"):
        duration_s(text)


def test_settings_split_at_the_first_equals_sign() -> None:
    """A value may hold another."""
    assert key_value("a=b=c") == ("a", "b=c")
    with pytest.raises(argparse.ArgumentTypeError):
        key_value("a")
