"""Did a new revision bring it? Who ran which revision when, and how slow they were.

Two comparisons decide, both within one service: requests on the new revision *before* the onset were exposed
to the change but not slow, and requests on the old revision *since* the onset were slow without being exposed.
Either of them speaks against the change, in proportion to how slow the others were.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

from detector.model import Change, Evidence, Verdict
from detector.rca.case import Case
from detector.rca.hypothesis import Coincidence, Finding, Hypothesis
from detector.rca.requests import Request

SOURCE = "changes"
PRIOR_REQUESTS = 10
"""Comparisons on fewer requests than this move the weight by less than half."""

LEAST_VARIANCE = 0.05
"""As of a proportion of 95 %: agreement that looks perfect on few requests is not."""

SHORT_SHA = 7


@dataclass(frozen=True)
class _Exposure:
    """Mean excess over the usual duration, seconds, of `n` requests; relative to the new revision's since onset."""

    n: int
    excess_s: float
    relative: float


class Changes:
    """Version changes seen in the spans' resources, each judged by exposure."""

    name = SOURCE

    def examine(self, case: Case) -> Finding:
        """Claim the unexplained slow-down for the change whose exposure fits."""
        requests = sorted((*case.requests_before, *case.requests_since), key=lambda r: r.start_s)
        if not any(request.revision or request.version for request in requests):
            return Finding(
                missing=(
                    "changes: the spans carry neither service.version nor vcs.ref.head.revision",
                )
            )
        return Finding(
            tuple(
                _judge(case, change)
                for change in find_changes(requests, case.snapshot.incident.service)
            )
        )


def find_changes(requests: Iterable[Request], service: str) -> list[Change]:
    """Return every change of version or revision, in order of the first request on it.

    A replica that goes on under its name changes when its revision does. Where a rollout brings replicas with new names,
    as pods have, a new one on another revision than the service's latest is the change; its siblings are not.
    """
    changes: list[Change] = []
    current: dict[str, Request] = {}
    latest: Request | None = None
    for request in requests:
        before = current.get(request.replica, latest)
        current[request.replica] = request
        if before is None:
            latest = request
            continue
        if _identity(request) == _identity(before) or _known(changes, before, request):
            continue
        latest = request
        changes.append(
            Change(
                request.start_s,
                service,
                before.version,
                request.version,
                before.revision,
                request.revision,
            )
        )
    return changes


def _identity(request: Request) -> tuple[str, str]:
    return request.version, request.revision


def _known(changes: Sequence[Change], before: Request, after: Request) -> bool:
    """Tell whether the latest change is this one already, on another replica."""
    if not changes:
        return False
    last = changes[-1]
    return (last.version_before, last.revision_before, last.version_after, last.revision_after) == (
        *_identity(before),
        *_identity(after),
    )


def _judge(case: Case, change: Change) -> Hypothesis:
    spared_before = [r.duration_s for r in case.requests_before if not _is_new(r, change)]
    usual_s = fmean(spared_before) if spared_before else 0.0
    new_since = [r for r in case.requests_since if _is_new(r, change)]
    slow_s = max(_excess_s(new_since, usual_s), 1e-9)
    exposed = _exposure([r for r in case.requests_before if _is_new(r, change)], usual_s, slow_s)
    spared = _exposure([r for r in case.requests_since if not _is_new(r, change)], usual_s, slow_s)
    weight = _fit(exposed) * (1 - _misfit(spared)) if new_since else 0.0
    evidence, counter = _statements(
        case, change, exposed, spared, _Exposure(len(new_since), slow_s, 1.0)
    )
    return Hypothesis(
        kind="deploy",
        target=change.revision_after or change.version_after,
        title=f"revision {_short(change.revision_after) or change.version_after} of {change.service}",
        verdict=Verdict.FAULT,
        claim=Coincidence(weight, _error(weight, exposed.n + spared.n)),
        evidence=evidence,
        counter_evidence=counter,
        next_steps=(_roll_back(change),),
    )


def _roll_back(change: Change) -> str:
    before, after = _short(change.revision_before), _short(change.revision_after)
    difference = f", or read the difference: git log {before}..{after}" if before and after else ""
    return f"Roll back {change.service} to {before or change.version_before}{difference}"


def _is_new(request: Request, change: Change) -> bool:
    return (request.version, request.revision) == (change.version_after, change.revision_after)


def _excess_s(requests: Sequence[Request], usual_s: float) -> float:
    return fmean(request.duration_s for request in requests) - usual_s if requests else 0.0


def _exposure(requests: Sequence[Request], usual_s: float, slow_s: float) -> _Exposure:
    excess_s = _excess_s(requests, usual_s)
    return _Exposure(len(requests), excess_s, min(max(excess_s / slow_s, 0.0), 1.0))


def _fit(exposed: _Exposure) -> float:
    """Return 1 when those exposed early were as slow, 0 when they were not; few requests count for less."""
    return (PRIOR_REQUESTS + exposed.n * exposed.relative) / (PRIOR_REQUESTS + exposed.n)


def _misfit(spared: _Exposure) -> float:
    """Return 1 when those not exposed were as slow, 0 when they were not; few requests count for less."""
    return spared.n * spared.relative / (PRIOR_REQUESTS + spared.n)


def _error(weight: float, n: int) -> float:
    """Return the standard error of a weight from `n` requests; never 0, however clear the case looks."""
    return sqrt(max(weight * (1 - weight), LEAST_VARIANCE) / (PRIOR_REQUESTS + n))


def _statements(
    case: Case, change: Change, exposed: _Exposure, spared: _Exposure, hit: _Exposure
) -> tuple[tuple[Evidence, ...], tuple[Evidence, ...]]:
    after_s = change.at_unix_s - case.since.start_s
    when = f"{abs(after_s):.0f} s {'after' if after_s > 0 else 'before'} the onset"
    query = f'request spans by vcs.ref.head.revision="{change.revision_after}"'
    evidence = [Evidence(SOURCE, f"first request on it came {when}", query)]
    if hit.n:
        evidence.append(
            Evidence(
                SOURCE,
                f"{hit.n} requests on it since the onset took longer than usual by (mean)",
                query,
                hit.excess_s,
                0.0,
                "s",
            )
        )
    counter: list[Evidence] = []
    for side, statement in (
        (exposed, "requests on it before the onset took longer than usual by (mean)"),
        (
            spared,
            "requests on the revision before it, since the onset, took longer than usual by (mean)",
        ),
    ):
        if side.n:
            speaks_against = (side.relative < 0.5) == (side is exposed)
            found = Evidence(SOURCE, f"{side.n} {statement}", query, side.excess_s, 0.0, "s")
            (counter if speaks_against else evidence).append(found)
    return tuple(evidence), tuple(counter)


def _short(revision: str) -> str:
    return revision[:SHORT_SHA]
