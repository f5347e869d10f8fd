"""The benchmark's statistics: a median with its interval, pairs kept together."""

from statistics import median

import pytest

from tests.bench.ebpf_end_to_end import Round, slowdown
from tests.bench.ebpf_workload import PairedRound, one_round, summed_up
from tests.bench.paired import Estimate, estimate, of_values, over


def test_interval_holds_the_median() -> None:
    """The median lies in its interval, the interval among the values."""
    said = of_values([5.0, 1.0, 3.0, 2.0, 4.0])
    assert said.median == 3.0
    assert 1.0 <= said.low <= said.median <= said.high <= 5.0


def test_equal_values_have_no_interval() -> None:
    """Without scatter there is no doubt."""
    said = of_values([2.0] * 9)
    assert (said.median, said.low, said.high) == (2.0, 2.0, 2.0)


def test_rounds_are_kept_whole() -> None:
    """A machine that drifts moves both sides of a pair: their ratio has no scatter."""
    rounds = [(float(drift), 2.0 * drift) for drift in range(1, 30)]
    said = estimate(rounds, lambda some: median(b / a for a, b in some))
    assert (said.median, said.low, said.high) == (2.0, 2.0, 2.0)


def test_slowdown_is_relative_to_the_runs_beside() -> None:
    """Our probe costs 10 %, runqlat 50 %, nothing costs nothing: drift cancels out."""
    rounds = [Round((d, d, d), 1.1 * d, 1.5 * d) for d in (1.0, 1.3, 0.9, 2.0)]
    said = slowdown(rounds)
    assert round(said.ours.median, 9) == 0.1
    assert round(said.runqlat.median, 9) == 0.5
    assert said.control.median == 0.0
    assert round(said.share.median, 9) == 0.2


@pytest.mark.parametrize("ours_first", [True, False])
def test_served_model_is_compared_with_the_turns_beside(ours_first: bool) -> None:
    """Ours costs 2 % and nothing costs nothing, whichever comes first and however the machine drifts."""
    drift = iter([1.0, 2.0, 3.0, 4.0, 5.0])
    played = one_round(lambda: next(drift), lambda: 1.02 * next(drift), ours_first=ours_first)
    said = summed_up([played] * 5)
    assert round(said.ours.median, 9) == 0.02
    assert said.control.median == 0.0


def test_round_knows_which_turn_was_ours() -> None:
    """The two turns between are told apart by which came first."""
    ours, control = (
        PairedRound((1, 1, 1), (1.5, 1.0), True),
        PairedRound((1, 1, 1), (1.0, 1.5), False),
    )
    assert (ours.ours, ours.control) == (control.ours, control.control) == (0.5, 0.0)


QUIET, NOISY = Estimate(0.0, -0.2, 0.2), Estimate(0.0, -4.0, 3.0)


@pytest.mark.parametrize(
    ("value", "control", "missed"),
    [
        (Estimate(0.9, 0.5, 1.3), None, False),
        (Estimate(1.1, 0.5, 1.3), None, True),
        (Estimate(float("nan"), 0.0, 0.0), None, True),
        (Estimate(float("nan"), 0.0, 0.0), NOISY, True),
        (Estimate(0.9, 0.5, 1.3), QUIET, False),
        (Estimate(1.1, 0.5, 1.3), QUIET, True),
        (Estimate(1.1, -3.0, 5.0), NOISY, False),
        (Estimate(5.0, 0.5, 9.0), NOISY, True),
        (Estimate(2.0, 1.2, 3.0), NOISY, True),
    ],
)
def test_budget_is_missed_when_noise_cannot_explain_it(
    value: Estimate, control: Estimate | None, missed: bool
) -> None:
    """Over the budget by the median, unless a control shows effects as large from nothing; by the interval always."""
    assert over(value, 1.0, control) is missed
