"""Where the tail's milliseconds went: own time by operation, before and since, at equal rank.

The slowest part of the requests since the onset is compared with the equally slow part of those before
it (both the top share p by duration), so that naturally long requests do not pass for slow ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.rca.requests import Request

MIN_TAIL_SHARE, MAX_TAIL_SHARE = 0.05, 0.5

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Side:
    """Requests of one side: `own_s` (requests, operations) own times and `duration_s` (requests,)."""

    own_s: Array
    duration_s: Array

    def draw(self, rng: np.random.Generator) -> "Side":
        """Resample the requests with replacement."""
        picked = rng.integers(0, len(self.duration_s), len(self.duration_s))
        return Side(self.own_s[picked], self.duration_s[picked])

    def tail_mean_s(self, share: float) -> Array:
        """Mean own time by operation (operations,) over the slowest `share` of the requests."""
        count = max(1, round(share * len(self.duration_s)))
        slowest = np.argpartition(self.duration_s, -count)[-count:]
        mean: Array = self.own_s[slowest].mean(axis=0)
        return mean

    def mean_s(self) -> Array:
        """Mean own time by operation (operations,) over all requests."""
        mean: Array = self.own_s.mean(axis=0)
        return mean


def operations_of(*sides: Sequence[Request]) -> tuple[str, ...]:
    """Return the names of all operations seen, sorted."""
    return tuple(
        sorted({name for side in sides for request in side for name in request.operations})
    )


def side_of(requests: Sequence[Request], operations: Sequence[str]) -> Side:
    """Lay out the own times of requests as a matrix."""
    own = np.array(
        [[request.operations.get(name, 0.0) for name in operations] for request in requests]
    )
    return Side(own, np.array([request.duration_s for request in requests]))


def tail_share(requests: Sequence[Request], threshold_s: float) -> float:
    """Share of the requests above a threshold, kept within 5 % and 50 %."""
    above = sum(request.duration_s > threshold_s for request in requests) / len(requests)
    return min(max(above, MIN_TAIL_SHARE), MAX_TAIL_SHARE)
