"""What the report says, decided once: every renderer lays out this view and adds nothing to it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from detector.model import Cause, Evidence, Report, SlowRequest, Verdict
from detector.report import changes, text, units, windows

_NAMED_PARTS = 5
OTHER_SLOT = _NAMED_PARTS
REMAINDER_SLOT = _NAMED_PARTS + 1


@dataclass(frozen=True)
class Fact:
    """One piece of evidence; `value` and `baseline` are empty for a statement without a number."""

    statement: str
    value: str
    baseline: str
    source: str
    query: str


@dataclass(frozen=True)
class Share:
    """A part of the excess with its band, all within 0..1, and how it reads."""

    value: float
    low: float
    high: float
    text: str


@dataclass(frozen=True)
class CauseView:
    """One ranked cause; `tag` is set where its verdict differs from the report's."""

    rank: int
    title: str
    target: str
    tag: str
    share: Share
    evidence: tuple[Fact, ...]
    counter_evidence: tuple[Fact, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class OperationRow:
    """Own time of an operation, before and since."""

    name: str
    baseline: str
    incident: str
    excess: str
    excess_s: float


@dataclass(frozen=True)
class Part:
    """One part of a request's time; `slot` picks its colour, the same in all requests."""

    label: str
    seconds: float
    slot: int


@dataclass(frozen=True)
class RequestRow:
    """One example request."""

    trace_id: str
    when: str
    duration: str
    duration_s: float
    revision: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Step:
    """One thing to do; `rank` is the cause that it follows from, 0 for none."""

    text: str
    rank: int


@dataclass(frozen=True)
class View:
    """A report, ready to be laid out."""

    report: Report
    prose: text.VerdictProse
    headline: str
    service: str
    model: str
    windows: windows.Windows
    causes: tuple[CauseView, ...]
    unexplained: Share
    missing: tuple[str, ...]
    operations: tuple[OperationRow, ...]
    changes: tuple[changes.ChangeRow, ...]
    legend: tuple[Part, ...]
    has_ledger: bool
    slowest: tuple[RequestRow, ...]
    ordinary: tuple[RequestRow, ...]
    steps: tuple[Step, ...]
    parameters: tuple[tuple[str, str], ...]


def build(report: Report) -> View:
    """Turn a report into what all renderers show."""
    slots = _slots(report)
    slowest = tuple(_request(item, report, slots) for item in report.slowest)
    ordinary = tuple(_request(item, report, slots) for item in report.ordinary)
    return View(
        report=report,
        prose=text.VERDICTS[report.verdict],
        headline=units.clean(report.headline) or units.UNKNOWN,
        service=units.clean(report.incident.service) or units.UNKNOWN,
        model=units.clean(report.incident.model) or units.UNKNOWN,
        windows=windows.of(report),
        causes=tuple(_cause(cause, rank, report) for rank, cause in enumerate(report.causes, 1)),
        unexplained=_share(report.unexplained_share, math.nan, math.nan),
        missing=_unique(report.missing),
        operations=_operations(report),
        changes=changes.rows(report),
        legend=_legend((*slowest, *ordinary)),
        has_ledger=any(item.waits for item in (*report.slowest, *report.ordinary)),
        slowest=slowest,
        ordinary=ordinary,
        steps=_steps(report),
        parameters=_parameters(report),
    )


def _unique(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(cleaned for item in items if (cleaned := units.clean(item))))


def _cause(cause: Cause, rank: int, report: Report) -> CauseView:
    return CauseView(
        rank=rank,
        title=units.clean(cause.title) or units.clean(cause.kind) or units.UNKNOWN,
        target=units.clean(cause.target) or units.UNKNOWN,
        tag="" if cause.verdict == report.verdict else text.CAUSE_TAGS[cause.verdict],
        share=_share(cause.share, cause.share_low, cause.share_high),
        evidence=tuple(_fact(item) for item in cause.evidence),
        counter_evidence=tuple(_fact(item) for item in cause.counter_evidence),
        missing=_unique(cause.missing),
    )


def _share(value: float, low: float, high: float) -> Share:
    return Share(
        value=_within(value, 0.0),
        low=_within(low, _within(value, 0.0)),
        high=_within(high, _within(value, 0.0)),
        text=units.share_with_band(value, low, high),
    )


def _within(share: float, otherwise: float) -> float:
    return min(max(share, 0.0), 1.0) if math.isfinite(share) else otherwise


def _fact(item: Evidence) -> Fact:
    numeric = item.value is not None or item.baseline is not None or bool(item.unit)
    return Fact(
        statement=units.clean(item.statement) or units.UNKNOWN,
        value=units.quantity(item.value, item.unit) if numeric else "",
        baseline=units.quantity(item.baseline, item.unit) if numeric else "",
        source=units.clean(item.source) or units.UNKNOWN,
        query=units.clean(item.query),
    )


def _operations(report: Report) -> tuple[OperationRow, ...]:
    ordered = sorted(report.operations, key=lambda item: -_finite(item.excess_s))
    return tuple(
        OperationRow(
            name=units.clean(item.operation) or units.UNKNOWN,
            baseline=units.duration(item.baseline_s),
            incident=units.duration(item.incident_s),
            excess=units.signed_duration(item.excess_s),
            excess_s=_finite(item.excess_s),
        )
        for item in ordered
    )


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _slots(report: Report) -> dict[str, int]:
    """Give a colour slot to each operation that holds most of the example requests' time."""
    totals: dict[str, float] = {}
    for request in (*report.slowest, *report.ordinary):
        for name, seconds in _spent(request).items():
            totals[name] = totals.get(name, 0.0) + _finite(seconds)
    largest = sorted(totals, key=lambda name: (-totals[name], name))[:_NAMED_PARTS]
    return {name: slot for slot, name in enumerate(largest)}


def _spent(request: SlowRequest) -> dict[str, float]:
    """Return what a request's time is shown by: its latency ledger, or its operations where there is none."""
    return request.waits or request.operations


def parts_of(request: SlowRequest, slots: dict[str, int]) -> tuple[Part, ...]:
    """Split a request's time into named, other and outside any operation; adds up to its duration."""
    spent = _spent(request)
    named = sorted((n for n in spent if n in slots), key=slots.__getitem__)
    parts = [Part(text.wait_label(n), _finite(spent[n]), slots[n]) for n in named]
    other = sum(_finite(s) for name, s in spent.items() if name not in slots)
    parts.append(Part(text.OTHER_PARTS, other, OTHER_SLOT))
    remainder = _finite(request.duration_s) - sum(part.seconds for part in parts)
    parts.append(Part(text.REMAINDER, remainder, REMAINDER_SLOT))
    # Below 0.5 % of the whole a part is rounding noise that no bar can show.
    return tuple(p for p in parts if p.seconds > 0.005 * _finite(request.duration_s))


def _request(request: SlowRequest, report: Report, slots: dict[str, int]) -> RequestRow:
    return RequestRow(
        trace_id=units.clean(request.trace_id) or units.UNKNOWN,
        when=units.relative(request.start_unix_s, report.incident.onset_unix_s),
        duration=units.duration(request.duration_s),
        duration_s=_finite(request.duration_s),
        revision=units.short_revision(request.revision),
        parts=parts_of(request, slots),
    )


def _legend(requests: Iterable[RequestRow]) -> tuple[Part, ...]:
    by_slot = {part.slot: part for request in requests for part in request.parts}
    return tuple(by_slot[slot] for slot in sorted(by_slot))


def _steps(report: Report) -> tuple[Step, ...]:
    """List the causes' steps in rank order; where nothing is established, missing data comes first."""
    found: dict[str, int] = {}
    if report.verdict is Verdict.INCONCLUSIVE:
        gaps = (*report.missing, *(gap for cause in report.causes for gap in cause.missing))
        found.update(dict.fromkeys((text.close_gap(gap) for gap in _unique(gaps)), 0))
    for rank, cause in enumerate(report.causes, 1):
        for step in _unique(cause.next_steps):
            found.setdefault(step, rank)
    if report.verdict is Verdict.INCONCLUSIVE:
        found.setdefault(text.more_requests(report), 0)
    return tuple(Step(step, rank) for step, rank in found.items())


def _parameters(report: Report) -> tuple[tuple[str, str], ...]:
    return tuple(
        (units.clean(name), units.clean(value) if isinstance(value, str) else f"{value:.6g}")
        for name, value in sorted(report.incident.parameters.items())
    )
