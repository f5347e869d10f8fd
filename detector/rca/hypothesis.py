"""What an evidence source answers: hypotheses with a claim on the tail's excess time.

There are three kinds of claims, by how directly they were observed:
a `Stall` was measured by the kernel, `Growth` by comparing work with time, a `Coincidence` only in time.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from detector.model import Evidence, Verdict
from detector.rca.case import Case


@dataclass(frozen=True)
class Stall:
    """The service stood still for a fraction of wall time (0..1), before and since the onset.

    A stall can only hit while work is in flight, so the attribution relates it to the busy part of wall time.
    `error` is one standard error of `since`.
    """

    before: float
    since: float
    error: float = 0.0

    def draw(self, rng: np.random.Generator) -> "Stall":
        """Return the claim as another measurement might have come out."""
        return replace(self, since=min(max(rng.normal(self.since, self.error), 0.0), 1.0))


@dataclass(frozen=True)
class Growth:
    """The offered work grew by exp(`log_ratio`) with standard error `error` (both natural logarithms)."""

    log_ratio: float
    error: float

    def draw(self, rng: np.random.Generator) -> "Growth":
        """Return the claim as another measurement might have come out."""
        return replace(self, log_ratio=rng.normal(self.log_ratio, self.error))


@dataclass(frozen=True)
class Coincidence:
    """Something changed at the right time; `weight` (0..1) is how well exposure and slowness agree.

    `error` is one standard error of it.
    """

    weight: float
    error: float = 0.0

    def draw(self, rng: np.random.Generator) -> "Coincidence":
        """Return the claim as another sample of requests might have come out."""
        return replace(self, weight=min(max(rng.normal(self.weight, self.error), 0.0), 1.0))


Claim = Stall | Growth | Coincidence


@dataclass(frozen=True)
class Hypothesis:
    """One possible cause and what speaks for and against it."""

    kind: str
    target: str
    title: str
    verdict: Verdict
    claim: Claim
    evidence: tuple[Evidence, ...] = ()
    counter_evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """The answer of one source: its hypotheses, and what it could not look at."""

    hypotheses: tuple[Hypothesis, ...] = ()
    missing: tuple[str, ...] = ()


class EvidenceSource(Protocol):
    """One kind of explanation."""

    name: str

    def examine(self, case: Case) -> Finding:
        """Look at the case; pure, and the same answer for the same case."""
        ...
