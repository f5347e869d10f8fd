"""When requests join a batch, and how much of a prompt a step takes."""

import pytest

from kernels.workload.generation import Shape
from kernels.workload.planner import chunk_of
from kernels.workload.scheduler import (
    POLICIES,
    ByShape,
    Continuous,
    Decision,
    Dynamic,
    Load,
    Policy,
    Static,
)
from kernels.workload.settings import Batching, Settings

SHORT, LONG = Shape(tokens=20), Shape(tokens=100)
GUIDED = Shape(tokens=20, guided=True)


def load(waiting: int, running: int, free_rows: int, oldest_wait_s: float) -> Load:
    """Make a load of like requests."""
    return Load([SHORT] * waiting, running, free_rows, oldest_wait_s)


def admitted(policy: Policy, seen: Load) -> tuple[list[int], float | None]:
    """Ask a policy."""
    decision = policy.decide(seen)
    return list(decision.admit), decision.ask_again_s


@pytest.mark.parametrize(
    ("seen", "admit"),
    [
        (load(waiting=3, running=2, free_rows=6, oldest_wait_s=0), [0, 1, 2]),
        (load(waiting=9, running=2, free_rows=6, oldest_wait_s=0), [0, 1, 2, 3, 4, 5]),
        (load(waiting=3, running=8, free_rows=0, oldest_wait_s=9), []),
        (load(waiting=0, running=0, free_rows=8, oldest_wait_s=0), []),
    ],
)
def test_continuous_admits_while_rows_are_free(seen: Load, admit: list[int]) -> None:
    """Continuous batching takes who comes, whatever runs; the token budget of the step decides how many."""
    assert admitted(Continuous(), seen) == (admit, None)


@pytest.mark.parametrize(
    ("seen", "admit", "ask_again_s"),
    [
        (load(waiting=3, running=1, free_rows=7, oldest_wait_s=9), [], None),
        (load(waiting=3, running=0, free_rows=8, oldest_wait_s=0.25), [], 0.75),
        (load(waiting=3, running=0, free_rows=8, oldest_wait_s=1.0), [0, 1, 2], None),
        (load(waiting=9, running=0, free_rows=8, oldest_wait_s=0), list(range(8)), None),
        (load(waiting=0, running=0, free_rows=8, oldest_wait_s=0), [], None),
    ],
)
def test_static_collects_a_batch(seen: Load, admit: list[int], ask_again_s: float | None) -> None:
    """Static batching waits for a full batch or a full waiting time, and never joins a running one."""
    assert admitted(Static(wait_s=1.0), seen) == (admit, ask_again_s)


@pytest.mark.parametrize(
    ("seen", "admit", "ask_again_s"),
    [
        (load(waiting=9, running=1, free_rows=7, oldest_wait_s=9), [], None),
        (load(waiting=3, running=0, free_rows=8, oldest_wait_s=0.25), [], 0.25),
        (load(waiting=5, running=0, free_rows=8, oldest_wait_s=0), [0, 1, 2, 3], None),
        (load(waiting=2, running=0, free_rows=8, oldest_wait_s=0.5), [0, 1], None),
        (load(waiting=2, running=0, free_rows=2, oldest_wait_s=0), [0, 1], None),
    ],
)
def test_dynamic_starts_at_its_size_or_after_its_delay(
    seen: Load, admit: list[int], ask_again_s: float | None
) -> None:
    """The preferred size starts at once, fewer when the oldest has waited for the delay."""
    assert admitted(Dynamic(preferred=4, max_queue_delay_s=0.5), seen) == (admit, ask_again_s)


@pytest.mark.parametrize(
    ("waiting", "admit"),
    [
        ([SHORT, LONG, SHORT, GUIDED, SHORT, SHORT, SHORT], [0, 2, 4, 5]),
        ([LONG, SHORT, LONG], [0]),
        ([GUIDED, SHORT, GUIDED, GUIDED], [0, 2]),
        ([Shape(tokens=4000), SHORT], [0]),
    ],
)
def test_by_shape_batches_what_is_alike(waiting: list[Shape], admit: list[int]) -> None:
    """128 tokens a batch: four of up to 32, one of up to 128; guidance doubles the work of each."""
    policy = ByShape(batch_tokens=128, max_queue_delay_s=0)
    assert admitted(policy, Load(waiting, 0, 8, 0.0)) == (admit, None)


def test_steps_are_part_of_the_shape() -> None:
    """Requests of different numbers of steps would not end together."""
    waiting = [Shape(20, steps=30), Shape(20, steps=50), Shape(20, steps=30)]
    policy = ByShape(batch_tokens=1024, max_queue_delay_s=0)
    assert admitted(policy, Load(waiting, 0, 8, 0.0)) == ([0, 2], None)


def test_by_shape_waits_for_more_of_the_same() -> None:
    """Others in the queue do not fill a batch."""
    policy = ByShape(batch_tokens=128, max_queue_delay_s=0.5)
    seen = Load([SHORT, LONG, LONG, LONG], 0, 8, 0.25)
    assert policy.decide(seen) == Decision(ask_again_s=0.25)


def test_every_batching_has_a_policy() -> None:
    """The table is complete, and says who holds finished rows."""
    held = {name: POLICIES[name](Settings()).keeps_batch for name in Batching}
    assert held == {name: name is Batching.STATIC for name in Batching}


@pytest.mark.parametrize(
    ("rest", "left", "chunk"),
    [(10, 100, 10), (100, 100, 100), (101, 100, 96), (50, 15, 0), (9, 9, 9)],
)
def test_chunks_are_whole_blocks_except_the_last(rest: int, left: int, chunk: int) -> None:
    """What is left of a prompt, or as many whole blocks as the budget has."""
    assert chunk_of(rest, left) == chunk
