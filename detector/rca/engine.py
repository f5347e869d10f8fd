"""From a snapshot to a report: examine, attribute, rank, conclude. Pure: the same snapshot, the same report."""

import numpy as np

from detector.model import (
    Cause,
    Change,
    OperationShare,
    Report,
    Signal,
    SlowRequest,
    Snapshot,
    Verdict,
)
from detector.rca.attribution import Attribution, attribute
from detector.rca.case import Case, open_case
from detector.rca.evidence.changes import find_changes
from detector.rca.evidence.registry import SOURCES
from detector.rca.hypothesis import EvidenceSource, Hypothesis
from detector.rca.requests import Request
from detector.rca.tail import operations_of, side_of, tail_share

MIN_SHARE = 0.4
"""A first cause that covers less than 40 % of the excess (at the low end of its band: 25 %) is no verdict."""
MIN_SHARE_LOW = 0.25
WORTH_NAMING = 0.1
"""Causes below a tenth of the excess are listed without advice."""
EXAMPLES = 3
LISTED_CAUSES = 6


def analyse(snapshot: Snapshot, sources: tuple[EvidenceSource, ...] = SOURCES) -> Report:
    """Rank the causes of an incident; raises AnalysisError when the snapshot holds too few requests."""
    case = open_case(snapshot)
    findings = [source.examine(case) for source in sources]
    hypotheses = [hypothesis for finding in findings for hypothesis in finding.hypotheses]
    p99_before_s = _quantile(case.requests_before, 0.99)
    share = tail_share(case.requests_since, p99_before_s)
    attribution = attribute(case, hypotheses, share)
    causes = _rank(hypotheses, attribution)
    verdict = conclude(causes)
    missing = (
        *_losses(snapshot),
        *_other_signal(snapshot),
        *(text for finding in findings for text in finding.missing),
    )
    p99_since_s = _quantile(case.requests_since, 0.99)
    return Report(
        incident=snapshot.incident,
        verdict=verdict,
        headline=_headline(verdict, causes),
        p99_before_s=p99_before_s,
        p99_since_s=p99_since_s,
        signal=Signal.E2E,
        requests_since=len(case.requests_since),
        requests_slow=sum(r.duration_s > p99_before_s for r in case.requests_since),
        baseline_requests=len(case.requests_before),
        operations=_operations(case, share),
        causes=causes[:LISTED_CAUSES],
        unexplained_share=attribution.unexplained,
        changes=_changes(case),
        slowest=_examples(case, _slowest(case)),
        ordinary=_examples(case, _ordinary(case)),
        missing=missing,
        analysed_from_unix_s=case.since.start_s,
        analysed_to_unix_s=case.since.end_s,
    )


def conclude(causes: tuple[Cause, ...]) -> Verdict:
    """Return the first cause's verdict if it covers enough of the excess, else say that it is not settled."""
    if not causes or causes[0].share < MIN_SHARE or causes[0].share_low < MIN_SHARE_LOW:
        return Verdict.INCONCLUSIVE
    return causes[0].verdict


def _rank(hypotheses: list[Hypothesis], attribution: Attribution) -> tuple[Cause, ...]:
    causes = [
        Cause(
            kind=hypothesis.kind,
            target=hypothesis.target,
            title=hypothesis.title,
            verdict=hypothesis.verdict,
            share=band.mean,
            share_low=band.low,
            share_high=band.high,
            score=band.mean * (1 - (band.high - band.low) / 2),
            evidence=hypothesis.evidence,
            counter_evidence=hypothesis.counter_evidence,
            missing=hypothesis.missing,
            next_steps=hypothesis.next_steps if band.mean >= WORTH_NAMING else (),
        )
        for hypothesis, band in zip(hypotheses, attribution.shares, strict=True)
    ]
    return tuple(sorted(causes, key=lambda cause: (-cause.score, cause.kind, cause.target)))


def _headline(verdict: Verdict, causes: tuple[Cause, ...]) -> str:
    if verdict is not Verdict.INCONCLUSIVE:
        return f"{causes[0].title}: {causes[0].share * 100:.0f} % of the excess"
    if not causes or causes[0].share < WORTH_NAMING:
        return "No cause covers the slow tail"
    lead = f"{causes[0].title}, {causes[0].share * 100:.0f} %"
    return f"No cause covers enough of the slow tail (best lead: {lead})"


def _operations(case: Case, share: float) -> tuple[OperationShare, ...]:
    names = operations_of(case.requests_before, case.requests_since)
    before = side_of(case.requests_before, names).tail_mean_s(share)
    since = side_of(case.requests_since, names).tail_mean_s(share)
    rows = [
        OperationShare(name, float(old), float(new), float(new - old))
        for name, old, new in zip(names, before, since, strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: (-row.excess_s, row.operation)))


def _changes(case: Case) -> tuple[Change, ...]:
    requests = sorted((*case.requests_before, *case.requests_since), key=lambda r: r.start_s)
    return tuple(find_changes(requests, case.snapshot.incident.service))


def _ordinary(case: Case) -> list[Request]:
    """Return the requests nearest the median of those before the onset."""
    median_s = _quantile(case.requests_before, 0.5)
    return sorted(case.requests_before, key=lambda r: (abs(r.duration_s - median_s), r.trace_id))[
        :EXAMPLES
    ]


def _slowest(case: Case) -> list[Request]:
    return sorted(case.requests_since, key=lambda r: (-r.duration_s, r.trace_id))[:EXAMPLES]


def _examples(case: Case, requests: list[Request]) -> tuple[SlowRequest, ...]:
    return tuple(
        SlowRequest(
            r.trace_id, r.start_s, r.duration_s, r.revision, dict(r.operations), case.ledger(r)
        )
        for r in requests
    )


def _losses(snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(
        f"{count} {what} were lost before the analysis"
        for what, count in sorted(snapshot.dropped.items())
        if count
    )


def _other_signal(snapshot: Snapshot) -> tuple[str, ...]:
    signals = {key.signal for key in snapshot.incident.series}
    if not signals or Signal.E2E in signals:
        return ()
    named = ", ".join(sorted(signal.value.replace("_", " ") for signal in signals))
    return (f"causes of {named} alone: what is divided here is the request duration",)


def _quantile(requests: tuple[Request, ...], level: float) -> float:
    return float(np.quantile([request.duration_s for request in requests], level))
