"""The benchmark's statistics: a median with its interval, pairs kept together."""

from statistics import median

from tests.bench.ebpf_end_to_end import Round, slowdown
from tests.bench.paired import estimate, of_values


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
