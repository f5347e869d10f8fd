"""When requests join a batch."""

import pytest

from kernels.workload.scheduler import POLICIES, Continuous, Decision, Load, Static
from kernels.workload.settings import Batching, Settings


@pytest.mark.parametrize(
    ("load", "admit"),
    [
        (Load(waiting=3, running=2, free_rows=6, oldest_wait_s=0), 1),
        (Load(waiting=3, running=8, free_rows=0, oldest_wait_s=9), 0),
        (Load(waiting=0, running=0, free_rows=8, oldest_wait_s=0), 0),
    ],
)
def test_continuous_admits_one_while_a_row_is_free(load: Load, admit: int) -> None:
    """Continuous batching takes the next request at once, whatever runs."""
    assert Decision(admit) == Continuous().decide(load)


@pytest.mark.parametrize(
    ("load", "decision"),
    [
        (Load(waiting=3, running=1, free_rows=7, oldest_wait_s=9), Decision(0)),
        (Load(waiting=3, running=0, free_rows=8, oldest_wait_s=0.25), Decision(0, 0.75)),
        (Load(waiting=3, running=0, free_rows=8, oldest_wait_s=1.0), Decision(3)),
        (Load(waiting=9, running=0, free_rows=8, oldest_wait_s=0), Decision(8)),
        (Load(waiting=0, running=0, free_rows=8, oldest_wait_s=0), Decision(0)),
    ],
)
def test_static_collects_a_batch(load: Load, decision: Decision) -> None:
    """Static batching waits for a full batch or a full waiting time, and never joins a running one."""
    assert decision == Static(wait_s=1.0).decide(load)


def test_every_batching_has_a_policy() -> None:
    """The table is complete, and says who holds finished rows."""
    held = {name: POLICIES[name](Settings()).keeps_batch for name in Batching}
    assert held == {Batching.CONTINUOUS: False, Batching.STATIC: True}
