"""Medians with bootstrap confidence intervals, for runs that are paired and interleaved.

Efron and Tibshirani, An Introduction to the Bootstrap (1993), section 13.3: the percentile interval.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

T = TypeVar("T")
RESAMPLES = 2000
SEED = 7


@dataclass(frozen=True)
class Estimate:
    """A median, and where it would lie in 95 of 100 repetitions."""

    median: float
    low: float
    high: float

    def scaled(self, factor: float) -> "Estimate":
        """Return it in another unit."""
        return Estimate(self.median * factor, self.low * factor, self.high * factor)


def estimate(rounds: Sequence[T], statistic: Callable[[Sequence[T]], float]) -> Estimate:
    """Return a statistic of some rounds with its interval; a round is kept whole, so that pairs stay pairs."""
    source = random.Random(SEED)
    resampled = sorted(statistic(source.choices(rounds, k=len(rounds))) for _ in range(RESAMPLES))
    return Estimate(
        statistic(rounds), resampled[RESAMPLES // 40], resampled[RESAMPLES - RESAMPLES // 40 - 1]
    )


def of_values(values: Sequence[float]) -> Estimate:
    """Return the median of some values with its interval."""
    return estimate(values, median)


def noise(control: Estimate) -> float:
    """Return the largest effect that nothing at all may seem to have."""
    return max(abs(control.low), abs(control.high))


def over(value: Estimate, budget: float, control: Estimate | None = None) -> bool:
    """Tell whether a budget is missed.

    Without a control when the median is above it. With one when the whole interval is, or when the median is and the
    control's interval excludes an effect of that size; else this machine's noise decides nothing.
    """
    if control is None:
        return not value.median <= budget
    return value.low > budget or not (value.median <= budget or noise(control) >= value.median)
