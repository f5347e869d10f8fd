"""The clock of spans follows the wall clock when that is set, and only then."""

from kernels.workload.clock import STEP_NS, Clock


def test_small_drift_is_ignored() -> None:
    """A wall clock that is slewed does not move the mapping."""
    wall = iter([1_000, 2_000 + STEP_NS // 2])
    clock = Clock(monotonic_ns=iter([0, 1_000]).__next__, wall_ns=wall.__next__)
    assert clock.now_ns() == 2_000


def test_a_step_is_followed() -> None:
    """A wall clock that was set takes the mapping with it."""
    wall = iter([1_000, 2_000 + 5 * STEP_NS])
    clock = Clock(monotonic_ns=iter([0, 1_000]).__next__, wall_ns=wall.__next__)
    assert clock.now_ns() == 2_000 + 5 * STEP_NS
