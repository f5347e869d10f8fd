"""Splits the tail's excess time over the hypotheses, so that the shares add up to one.

The excess of each operation is either *direct* (it took longer for the same work) or *congestion* (it waited
for others, or shared its step with more of them). Congestion follows from two things only, more work offered or a
slower service, and is divided between them in proportion to their logarithms: utilisation is arrival rate times
service time, so log utilisation is a sum. The slow part is then handed down in order of directness:

1. stalls that the kernel measured take the part of the slow-down that their wall time covers;
2. what is left goes to the change whose timing fits best, as far as it fits;
3. the rest is unexplained, and is reported as such.

All bands come from resampling the requests of both sides (percentile bootstrap, 90 %).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from detector.rca.case import Case
from detector.rca.hypothesis import Claim, Coincidence, Growth, Hypothesis, Stall
from detector.rca.tail import Array, Side, operations_of, side_of

QUEUE = "queue"
ENGINE = frozenset({"prefill", "decode"})
"""Operations that run in engine steps, whose work is known; any other operation's excess is direct."""

SLOWDOWN_NOISE = 0.05
"""A slow-down at equal work below 5 % is not told from noise."""

GROWTH_SIGMAS = 2.0
"""Growth of demand within two standard errors is not told from noise."""

DRAWS = 200


@dataclass(frozen=True)
class Band:
    """A share with its 90 % band."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Attribution:
    """Shares by hypothesis (same order as given) and what no hypothesis covers."""

    shares: tuple[Band, ...]
    unexplained: float


@dataclass(frozen=True)
class _Service:
    """The service as a whole, before and since the onset.

    `slowdown` is how much longer an engine step takes for the same work (None when no steps were seen),
    `busy_*` the part of wall time (0..1) in which requests were in flight.
    """

    slowdown: float | None
    busy_before: float
    busy_since: float


@dataclass(frozen=True)
class _Excess:
    """Mean excess per tail request, seconds, and the slow-down of an average request's own service time."""

    direct_s: float
    congestion_s: float
    service_before_s: float
    service_since_s: float
    service_direct_s: float

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.direct_s + self.congestion_s


def attribute(case: Case, hypotheses: Sequence[Hypothesis], share: float) -> Attribution:
    """Divide the excess of the slowest `share` of the requests over the hypotheses."""
    operations = operations_of(case.requests_before, case.requests_since)
    before, since = (
        side_of(case.requests_before, operations),
        side_of(case.requests_since, operations),
    )
    service = _service(case)

    claims = [hypothesis.claim for hypothesis in hypotheses]

    def divide(old: Side, new: Side, claimed: Sequence[Claim]) -> Array:
        return _divide(_excess(operations, old, new, service, share), claimed, service)

    rng = case.rng()
    point = divide(before, since, claims)
    draws = np.array(
        [
            divide(before.draw(rng), since.draw(rng), [claim.draw(rng) for claim in claims])
            for _ in range(DRAWS)
        ]
    )
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    shares = tuple(
        Band(float(p), float(min(lo, p)), float(max(hi, p)))
        for p, lo, hi in zip(point, low, high, strict=True)
    )
    return Attribution(shares[:-1], float(point[-1]))


def _service(case: Case) -> _Service:
    model = case.step_model
    slowdown = model.slowdown(case.steps_since) if model and case.steps_since else None
    return _Service(slowdown, case.busy_before, case.busy_since)


def _excess(
    operations: Sequence[str], before: Side, since: Side, service: _Service, share: float
) -> _Excess:
    slowdown = service.slowdown
    direct, congestion = _split(
        operations, before.tail_mean_s(share), since.tail_mean_s(share), slowdown
    )
    mean_before, mean_since = before.mean_s(), since.mean_s()
    served = [name != QUEUE for name in operations]
    service_direct, _ = _split(operations, mean_before, mean_since, slowdown)
    return _Excess(
        direct_s=direct,
        congestion_s=congestion,
        service_before_s=float(mean_before[served].sum()),
        service_since_s=float(mean_since[served].sum()),
        service_direct_s=service_direct,
    )


def _split(
    operations: Sequence[str], before_s: Array, since_s: Array, slowdown: float | None
) -> tuple[float, float]:
    """Return the direct and the congestion part of the excess of all operations, seconds."""
    direct = congestion = 0.0
    for name, old, new in zip(operations, before_s, since_s, strict=True):
        excess = max(float(new - old), 0.0)
        shared = _shared_s(name, float(new), excess, slowdown)
        congestion += shared
        direct += excess - shared
    return direct, congestion


def _shared_s(name: str, since_s: float, excess_s: float, slowdown: float | None) -> float:
    """Return the part of an operation's excess that comes from sharing with others rather than from slower work.

    At the speed of before, the engine would have spent `since_s / slowdown` on the same steps.
    """
    if excess_s <= 0:
        return 0.0
    if name == QUEUE:
        return excess_s
    if name in ENGINE and slowdown is not None:
        return excess_s - min(excess_s, since_s * max(1 - 1 / slowdown, 0.0))
    return 0.0


def _divide(excess: _Excess, claims: Sequence[Claim], service: _Service) -> Array:
    """Return shares of the total by claim and, last, the unexplained one; shape (claims + 1,)."""
    shares = np.zeros(len(claims) + 1)
    if excess.total_s <= 0:
        shares[-1] = 1.0
        return shares
    demand = _demand_weights(claims)
    slow_weight = max(log(_slowdown(excess, service)) - SLOWDOWN_NOISE, 0.0)
    weight = demand.sum() + slow_weight
    orphan_s = 0.0 if weight > 0 else excess.congestion_s
    slow_s = excess.direct_s
    if weight > 0:
        shares[:-1] += demand / weight * excess.congestion_s
        slow_s += slow_weight / weight * excess.congestion_s
    stalls = _stall_fractions(excess, claims, service)
    shares[:-1] += stalls * slow_s
    left_s = slow_s * (1 - stalls.sum()) + orphan_s
    shares[:-1] += _coincidence_weights(claims) * left_s
    shares[:-1] /= excess.total_s
    shares[-1] = max(1.0 - shares[:-1].sum(), 0.0)
    return shares


def _slowdown(excess: _Excess, service: _Service) -> float:
    """Return the slow-down at equal work; without steps that of an average request's service time, whatever its work."""
    if service.slowdown is not None:
        return max(service.slowdown, 1e-9)
    return max(excess.service_since_s, 1e-9) / max(excess.service_before_s, 1e-9)


def _demand_weights(claims: Sequence[Claim]) -> Array:
    """Return the log growth of offered work beyond its noise, by claim."""
    return np.array(
        [_beyond_noise(claim) if isinstance(claim, Growth) else 0.0 for claim in claims]
    )


def _beyond_noise(growth: Growth) -> float:
    return max(growth.log_ratio - GROWTH_SIGMAS * growth.error, 0.0)


def _stall_fractions(excess: _Excess, claims: Sequence[Claim], service: _Service) -> Array:
    """Return the part of the slow-down that each stall's wall time covers, together at most one.

    It is judged on all requests, not on the tail: the tail is where the stalls fell, an average would miss them.
    """
    covered = np.array([_covered_s(excess, claim, service) for claim in claims])
    fractions = covered / max(excess.service_direct_s, 1e-9)
    shared: Array = fractions / max(float(fractions.sum()), 1.0)
    return shared


def _covered_s(excess: _Excess, claim: Claim, service: _Service) -> float:
    """Return the seconds of an average request's service time that a stall took since the onset, beyond before."""
    if not isinstance(claim, Stall):
        return 0.0
    before = min(claim.before / max(service.busy_before, 1e-9), 1.0)
    since = min(claim.since / max(service.busy_since, 1e-9), 1.0)
    return max(since * excess.service_since_s - before * excess.service_before_s, 0.0)


def _coincidence_weights(claims: Sequence[Claim]) -> Array:
    """Return how much of the rest each change takes: the best fit alone, as far as it fits."""
    weights = np.array(
        [claim.weight if isinstance(claim, Coincidence) else 0.0 for claim in claims]
    )
    if weights.size:
        weights[np.arange(weights.size) != weights.argmax()] = 0.0
    return weights
