"""Turns the traces' lengths and gaps into ones that fit a small server.

Real lengths spread over three decades; a P99 over short windows needs log-sigma ≤ 0.4. So the
logarithms are pulled towards the median by one factor, moved to a new median, and cut.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kernels.load.azure import LEVELS

MAX_LOG_SIGMA = 0.4
GAP_CUT_LEVEL = 0.95
"""Gaps past this quantile are cut to it: the burstiest tail goes, the body stays."""


@dataclass(frozen=True)
class Target:
    """The range and median that lengths are brought to."""

    low: int
    median: int
    high: int


PROMPT = Target(40, 72, 128)
OUTPUT = Target(8, 14, 24)


@dataclass(frozen=True)
class LengthScale:
    """`tokens = median · (x / trace_median) ^ exponent`, cut to the target's range."""

    target: Target
    trace_median: float
    exponent: float

    @classmethod
    def fit(cls, sample: Sequence[float], target: Target) -> "LengthScale":
        """Choose the exponent that brings the log-sigma of a sample down to at most 0.4."""
        logs = [math.log(max(value, 1.0)) for value in sample]
        mean = sum(logs) / len(logs)
        sigma = math.sqrt(sum((value - mean) ** 2 for value in logs) / len(logs))
        exponent = min(1.0, MAX_LOG_SIGMA / sigma) if sigma > 0 else 1.0
        return cls(target, sorted(sample)[len(sample) // 2], exponent)

    def apply(self, tokens: float) -> int:
        """Scale one length."""
        ratio = max(tokens, 1.0) / max(self.trace_median, 1.0)
        scaled = self.target.median * math.pow(ratio, self.exponent)
        return min(max(round(scaled), self.target.low), self.target.high)

    def describe(self) -> dict[str, float]:
        """Give the scaling as figures to print."""
        return {
            "trace_median": self.trace_median,
            "median": self.target.median,
            "exponent": round(self.exponent, 3),
            "low": self.target.low,
            "high": self.target.high,
        }


def inverse(quantiles: Sequence[float], level: float) -> float:
    """Read a quantile table at any probability, linear between its points (inverse transform)."""
    right = min(max(bisect_right(LEVELS, level), 1), len(LEVELS) - 1)
    share = (level - LEVELS[right - 1]) / (LEVELS[right] - LEVELS[right - 1])
    return quantiles[right - 1] + share * (quantiles[right] - quantiles[right - 1])


class GapTable:
    """Independent gaps between arrivals with mean 1, drawn from a table whose tail is cut."""

    def __init__(self, quantiles: Sequence[float]) -> None:
        cut = inverse(quantiles, GAP_CUT_LEVEL)
        self._quantiles = tuple(min(value, cut) for value in quantiles)
        pairs = list(pairwise(self._quantiles))
        self._mean = sum((a + b) / 2 for a, b in pairs) / len(pairs)
        square = sum((a * a + a * b + b * b) / 3 for a, b in pairs) / len(pairs)
        self.cv = math.sqrt(square - self._mean**2) / self._mean
        """Standard deviation over mean of the gaps, exactly, for the piecewise-linear table."""

    def draw(self, rng: random.Random) -> float:
        """Draw one gap as a multiple of the mean."""
        return inverse(self._quantiles, rng.random()) / self._mean
