"""Counts and latencies of a run, as the client sees them."""

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

RECENT_S = 10.0
"""Progress lines give the quantiles of answers that ended in this last stretch."""


class Outcome(StrEnum):
    """How a request ended; a 429 is a rejection, never a fast request."""

    OK = "ok"
    REJECTED = "rejected"
    FAILED = "failed"


@dataclass(frozen=True)
class Answer:
    """One finished request; times count from its departure, in seconds, over all attempts."""

    outcome: Outcome
    first_token_s: float = 0.0
    total_s: float = 0.0
    reason: str = ""
    attempts: int = 1


@dataclass
class Tally:
    """What has happened so far."""

    sent: int = 0
    late: int = 0
    dropped: int = 0
    retries: int = 0
    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    reasons: dict[str, int] = field(default_factory=dict)
    _total_s: "array[float]" = field(default_factory=lambda: array("d"))
    _first_token_s: "array[float]" = field(default_factory=lambda: array("d"))
    _recent: deque[tuple[float, float]] = field(default_factory=deque)

    def drop(self) -> None:
        """Count a request that was not sent because too many were in flight: it failed."""
        self.dropped += 1
        self._fail("too many in flight")

    def abandon(self) -> None:
        """Count a request that was still unanswered when the run ended."""
        self._fail("unanswered at the end")

    def add(self, answer: Answer, at_s: float) -> None:
        """Count a finished request."""
        self.retries += answer.attempts - 1
        if answer.outcome is Outcome.FAILED:
            self._fail(answer.reason)
            return
        self.outcomes[answer.outcome] += 1
        if answer.outcome is Outcome.OK:
            self._total_s.append(answer.total_s)
            self._first_token_s.append(answer.first_token_s)
            self._recent.append((at_s, answer.total_s))

    def _fail(self, reason: str) -> None:
        self.outcomes[Outcome.FAILED] += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def counts(self) -> dict[str, int]:
        """Give the counts since the start."""
        return {"sent": self.sent, **{str(name): n for name, n in self.outcomes.items()}}

    def progress(self, at_s: float) -> dict[str, float | None]:
        """Give counts since the start, and quantiles of the last ten seconds."""
        while self._recent and self._recent[0][0] < at_s - RECENT_S:
            self._recent.popleft()
        recent = sorted(total for _, total in self._recent)
        latencies = {"p50_s": quantile(recent, 0.5), "p99_s": quantile(recent, 0.99)}
        return {"t": round(at_s, 1), **self.counts(), **latencies}

    def summary(self) -> dict[str, object]:
        """Give counts and quantiles of the whole run."""
        total, first = sorted(self._total_s), sorted(self._first_token_s)
        return {
            **self.counts(),
            "late": self.late,
            "dropped": self.dropped,
            "retries": self.retries,
            "reasons": self.reasons,
            "p50_s": quantile(total, 0.5),
            "p99_s": quantile(total, 0.99),
            "first_token_p50_s": quantile(first, 0.5),
            "first_token_p99_s": quantile(first, 0.99),
        }


def quantile(ordered: Sequence[float], level: float) -> float | None:
    """Quantile of sorted values, linear between ranks, in microsecond digits; None of nothing."""
    if not ordered:
        return None
    rank = level * (len(ordered) - 1)
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return round(ordered[below] + (rank - below) * (ordered[above] - ordered[below]), 6)
