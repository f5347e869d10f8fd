"""Was more asked of the service? Requests offered per second, and tokens per request."""

from collections.abc import Sequence
from math import log, sqrt
from statistics import fmean, pvariance

from detector.model import Evidence, Verdict
from detector.rca.attribution import GROWTH_SIGMAS
from detector.rca.case import Case, Interval
from detector.rca.hypothesis import Finding, Growth, Hypothesis
from detector.rca.requests import Request

SOURCE = "demand"
_NEXT = (
    "Check whether the objective holds at this load; if not, add replicas or raise the batch limit.",
    "If the load is unwanted, find the tenant that sends it and limit its rate.",
)


class Demand:
    """Growth of arrivals and of work per request, each with its sampling noise."""

    name = SOURCE

    def examine(self, case: Case) -> Finding:
        """Claim the growth of offered work beyond noise."""
        found = (
            _arrivals(case),
            _length(case, "input_tokens", "prompts"),
            _length(case, "output_tokens", "answers"),
        )
        missing = (
            ()
            if case.step_model
            else (
                "work per engine step: no step spans, so slower service and more work are told apart only roughly",
            )
        )
        return Finding(tuple(one for one in found if one is not None), missing)


def _arrivals(case: Case) -> Hypothesis | None:
    """Judge requests offered per second by their start, the rejected ones included.

    Requests that had not ended when the snapshot was taken left no span; counting only starts that are
    older than the longest duration seen keeps a slow-down from passing for a drop in traffic.
    """
    settled = _settled(case)
    old = len(case.requests_before) + case.failed_before
    new = _started(case, settled)
    if not old or not new:
        return None
    before, since = old / case.before.length_s, new / settled.length_s
    growth = Growth(log(since / before), sqrt(_dispersion(case) * (1 / old + 1 / new)))
    if growth.log_ratio <= GROWTH_SIGMAS * growth.error:
        return None
    evidence = [
        Evidence(
            SOURCE,
            "requests per second offered",
            "count(request spans) by start",
            since,
            before,
            "{request}/s",
        )
    ]
    if case.failed_since:
        evidence.append(
            Evidence(
                SOURCE,
                "requests rejected or failed",
                "count(request spans with an error)",
                float(case.failed_since),
                float(case.failed_before),
                "{request}",
            )
        )
    model = case.step_model
    if model is not None:
        evidence.append(
            Evidence(
                SOURCE,
                "time per engine step at equal work, against before the onset",
                "sum(step duration) / expected from the work in it",
                model.slowdown(case.steps_since),
                1.0,
                "x",
            )
        )
    title = f"{since / before:.1f} times the requests per second"
    return Hypothesis(
        "demand",
        case.snapshot.incident.service,
        title,
        Verdict.DEMAND,
        growth,
        tuple(evidence),
        next_steps=_NEXT,
    )


def _length(case: Case, attribute: str, what: str) -> Hypothesis | None:
    """Judge the mean number of tokens per request."""
    old, new = _tokens(case.requests_before, attribute), _tokens(case.requests_since, attribute)
    if not old or not new or fmean(old) <= 0 or fmean(new) <= 0:
        return None
    before, since = fmean(old), fmean(new)
    error = sqrt(pvariance(old) / len(old) / before**2 + pvariance(new) / len(new) / since**2)
    growth = Growth(log(since / before), error)
    if growth.log_ratio <= GROWTH_SIGMAS * growth.error:
        return None
    evidence = Evidence(
        SOURCE,
        f"mean {attribute.replace('_', ' ')} per request",
        f"avg(gen_ai.usage.{attribute})",
        since,
        before,
        "{token}",
    )
    return Hypothesis(
        f"longer_{what}",
        case.snapshot.incident.service,
        f"{what} are {since / before:.1f} times as long",
        Verdict.DEMAND,
        growth,
        (evidence,),
        next_steps=_NEXT,
    )


def _tokens(requests: Sequence[Request], attribute: str) -> list[float]:
    return [float(value) for request in requests if (value := getattr(request, attribute)) > 0]


def _settled(case: Case) -> Interval:
    """Return the part of the incident whose requests have had the time to end."""
    slow = max((request.duration_s for request in case.requests_since), default=0.0)
    end = max(case.since.end_s - slow, case.since.start_s + case.since.length_s / 3)
    return Interval(case.since.start_s, end)


def _started(case: Case, within: Interval) -> int:
    """Count the requests that started within an interval; a failed one counts by its place in time."""
    started = sum(within.holds(request.start_s) for request in case.requests_since)
    failed = round(case.failed_since * within.length_s / case.since.length_s)
    return started + failed


def _dispersion(case: Case) -> float:
    """Variance over mean of arrivals per second before the onset, at least 1 (Poisson)."""
    counts = [0] * max(int(case.before.length_s), 1)
    for request in case.requests_before:
        second = int(request.end_s - case.before.start_s)
        counts[min(max(second, 0), len(counts) - 1)] += 1
    mean = fmean(counts)
    return max(pvariance(counts) / mean, 1.0) if mean > 0 else 1.0
