"""What a step should cost for the work in it, learned before the onset.

Larger batches and longer contexts make a step slower without anything being wrong. A linear model over
the work of a step tells the slow-down at equal work (a fault's sign) from the growth of the work.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.rca.requests import Step

MIN_STEPS = 50


@dataclass(frozen=True)
class StepModel:
    """Seconds per step = `weights` · (1, batch size, prefill tokens, decode tokens, context tokens)."""

    weights: NDArray[np.float64]
    mean_before_s: float

    @classmethod
    def learn(cls, steps: Sequence[Step]) -> "StepModel | None":
        """Fit by ridge regression on the steps before the onset; None with fewer than 50 steps.

        The slowest percent is left out: a pause during the baseline must not count as the cost of work.
        """
        if len(steps) < MIN_STEPS:
            return None
        work = _work(steps)
        seconds = np.array([step.duration_s for step in steps])
        kept = seconds <= np.quantile(seconds, 0.99)
        work, seconds = work[kept], seconds[kept]
        scale = np.maximum(np.abs(work).max(axis=0), 1e-12)
        scaled = work / scale
        gram = scaled.T @ scaled + 1e-3 * np.eye(scaled.shape[1])
        weights = np.linalg.solve(gram, scaled.T @ seconds) / scale
        return cls(weights=weights, mean_before_s=float(seconds.mean()))

    def expected_s(self, steps: Sequence[Step]) -> NDArray[np.float64]:
        """Return the duration of each step at the speed before the onset, at least a tenth of the mean."""
        expected: NDArray[np.float64] = _work(steps) @ self.weights
        return np.maximum(expected, self.mean_before_s / 10)

    def slowdown(self, steps: Sequence[Step]) -> float:
        """Ratio of the time that steps took to the time that their work should take (1 = as before)."""
        if not steps:
            return 1.0
        return float(sum(step.duration_s for step in steps) / self.expected_s(steps).sum())


def _work(steps: Sequence[Step]) -> NDArray[np.float64]:
    """Return the design matrix, shape (steps, 5)."""
    return np.array(
        [[1.0, s.batch_size, s.prefill_tokens, s.decode_tokens, s.context_tokens] for s in steps]
    )
