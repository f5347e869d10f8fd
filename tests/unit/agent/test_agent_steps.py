"""Steps looked up by time: whole, cut at the edges, out of order, bounded."""

from pytest import approx  # noqa: PT013  reads better in comparisons

from agent.steps import Engines
from agent.telemetry.keys import WAIT_PARTS
from agent.telemetry.steps import Parts, Steps


def parts(cpu_s: float, runqueue_s: float = 0.0) -> Parts:
    """Return parts with these two."""
    return [cpu_s, runqueue_s, *[0.0] * (len(WAIT_PARTS) - 2)]


def engine(*steps: tuple[int, int, float]) -> Steps:
    """Return an engine with steps of (start, end, CPU)."""
    made = Steps()
    for start_ns, end_ns, cpu_s in steps:
        made.add(start_ns, end_ns, parts(cpu_s))
    return made


def test_whole_steps_are_summed() -> None:
    """Steps inside the interval count whole, those outside not at all."""
    found = engine((0, 10, 1.0), (10, 20, 2.0), (20, 30, 4.0), (30, 40, 8.0)).between(10, 30)
    assert found == parts(6.0)


def test_cut_steps_count_in_proportion() -> None:
    """A step that lies half inside counts half, at either end."""
    found = engine((0, 10, 1.0), (10, 20, 2.0), (20, 30, 4.0)).between(5, 25)
    assert found == parts(0.5 + 2.0 + 2.0)


def test_interval_inside_one_step() -> None:
    """A tenth of a step counts a tenth."""
    assert engine((0, 100, 1.0)).between(30, 40) == approx(parts(0.1))


def test_nothing_ran() -> None:
    """Before, between and after the steps there is nothing, which is not the same as zeros."""
    steps = engine((10, 20, 1.0), (40, 50, 1.0))
    assert [steps.between(0, 10), steps.between(20, 40), steps.between(50, 60)] == [None] * 3
    assert Steps().between(0, 1) is None
    assert steps.between(15, 15) is None


def test_late_steps_find_their_place() -> None:
    """A step that arrives after a later one is found all the same."""
    assert engine((20, 30, 4.0), (0, 10, 1.0), (10, 20, 2.0)).between(0, 20) == parts(3.0)


def test_old_steps_make_room() -> None:
    """A full engine forgets its older half, not its newer one."""
    made = Steps(max_steps=10)
    for start in range(11):
        made.add(start, start + 1, parts(1.0))
    assert made.between(0, 5) is None
    assert made.between(5, 11) == parts(6.0)


def test_idle_engines_make_room() -> None:
    """Of too many engines the one that was idle longest goes."""
    engines = Engines(max_engines=2)
    first, second = engines.of((1, 1)), engines.of((1, 2))
    assert engines.of((1, 1)) is first
    engines.of((1, 3))
    assert engines.of((1, 1)) is first
    assert engines.of((1, 2)) is not second
