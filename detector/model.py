"""The data that passes between the detector's parts; all of it serialises to canonical JSON."""

from enum import StrEnum

import msgspec

from agent.telemetry.model import Point, Span


class Signal(StrEnum):
    """The latency series that we judge."""

    TTFT = "time_to_first_token"
    TPOT = "time_per_output_token"
    E2E = "request_duration"


class SeriesKey(msgspec.Struct, frozen=True, order=True):
    """One latency series; `replica` is empty for all replicas of the service together."""

    service: str
    model: str
    replica: str
    signal: Signal


class WindowVerdict(msgspec.Struct, frozen=True):
    """One window of one series, judged against its forecast.

    `p99_s` is what was observed, `forecast_p99_s` the 99 % quantile that was expected, with the band
    [`lower_s`, `upper_s`] in which an observed P99 of `n` requests falls at 2.5 sigma. `exceedances` counts the
    requests above the forecast quantile; `residual_sigma` is how unlikely that count is, as standard
    deviations of a normal distribution. `learned` tells whether the forecaster took the window in. Where
    `judged` is false (too few requests finished, or no baseline yet) the window is unknown, not healthy: band,
    exceedances and residual are 0 and mean nothing.
    """

    key: SeriesKey
    start_unix_s: float
    end_unix_s: float
    n: int
    failures: int
    p50_s: float
    p99_s: float
    forecast_p99_s: float
    lower_s: float
    upper_s: float
    exceedances: int
    residual_sigma: float
    out_of_band: bool
    learned: bool
    judged: bool = True


class Incident(msgspec.Struct, frozen=True):
    """A residual that left its band; `onset_unix_s` is the start of the first window that was out of it."""

    id: str
    service: str
    model: str
    onset_unix_s: float
    detected_unix_s: float
    window_s: float
    series: tuple[SeriesKey, ...]
    windows: tuple[WindowVerdict, ...]
    parameters: dict[str, float | str]
    baseline_start_unix_s: float
    ended_unix_s: float | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """All that root-cause analysis may look at; stored with the incident so that it can be replayed.

    Baseline is [`baseline_start_unix_s`, `incident.onset_unix_s`), the incident itself
    [`incident.onset_unix_s`, `end_unix_s`). `spans` are all spans of all services in both, `points` likewise.
    `dropped` counts what the store or the intake lost meanwhile.
    """

    incident: Incident
    end_unix_s: float
    spans: tuple[Span, ...]
    points: tuple[Point, ...]
    dropped: dict[str, int] = {}


class Verdict(StrEnum):
    """What kind of thing happened."""

    FAULT = "fault"
    DEMAND = "demand"
    NONE = "none"
    INCONCLUSIVE = "inconclusive"


class Evidence(msgspec.Struct, frozen=True):
    """One measured statement; `query` says how to look it up again, `missing` that it could not be."""

    source: str
    statement: str
    query: str
    value: float | None = None
    baseline: float | None = None
    unit: str = ""


class Cause(msgspec.Struct, frozen=True):
    """One ranked cause.

    `share` is the part of the tail's excess time that it accounts for (0..1), [`share_low`, `share_high`]
    its 90 % band; shares of all causes and `Report.unexplained_share` add up to 1. `score` orders causes.
    """

    kind: str
    target: str
    title: str
    verdict: Verdict
    share: float
    share_low: float
    share_high: float
    score: float
    evidence: tuple[Evidence, ...] = ()
    counter_evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()


class OperationShare(msgspec.Struct, frozen=True):
    """Own time of one operation in the tail, per request, before and since."""

    operation: str
    baseline_s: float
    incident_s: float
    excess_s: float


class SlowRequest(msgspec.Struct, frozen=True):
    """One example request: its own time by operation and its latency ledger (empty when not measured), seconds."""

    trace_id: str
    start_unix_s: float
    duration_s: float
    revision: str
    operations: dict[str, float]
    waits: dict[str, float] = {}


class Change(msgspec.Struct, frozen=True):
    """A change of version seen in the telemetry."""

    at_unix_s: float
    service: str
    version_before: str
    version_after: str
    revision_before: str
    revision_after: str


class Report(msgspec.Struct, frozen=True):
    """The answer; every renderer draws from this alone."""

    incident: Incident
    verdict: Verdict
    headline: str
    p99_before_s: float
    p99_since_s: float
    signal: Signal
    requests_since: int
    requests_slow: int
    baseline_requests: int
    operations: tuple[OperationShare, ...]
    causes: tuple[Cause, ...]
    unexplained_share: float
    changes: tuple[Change, ...]
    slowest: tuple[SlowRequest, ...]
    ordinary: tuple[SlowRequest, ...]
    missing: tuple[str, ...]
    analysed_from_unix_s: float
    analysed_to_unix_s: float
    schema: int = 1
