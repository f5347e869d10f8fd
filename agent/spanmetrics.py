"""Histograms of the requests in the spans that pass through, with the spans that stand for their buckets.

Bounds: OpenTelemetry semantic conventions v1.44, "Generative AI model server metrics". An exemplar is the slowest
measurement of its bucket within a minute, so that a slow bucket leads to a recent trace.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from opentelemetry.proto.trace.v1 import trace_pb2

from agent.genai import Request
from agent.telemetry.keys import (
    ERROR_TYPE,
    GEN_AI_MODEL,
    GEN_AI_OPERATION,
    GEN_AI_PROVIDER,
    PIPE,
    REASON,
    SERVICE_NAME,
    SOURCE,
)
from agent.telemetry.model import Exemplar, ExplicitBuckets, Sample

DURATION = "gen_ai.server.request.duration"
TTFT = "gen_ai.server.time_to_first_token"
TPOT = "gen_ai.server.time_per_output_token"
BOUNDS: dict[str, tuple[float, ...]] = {
    DURATION: (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
    TTFT: (
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    ),
    TPOT: (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
}  # fmt: skip
MAX_SERIES = 300
OVERFLOW = "otel.metric.overflow"
"""What the OpenTelemetry SDK calls the series of what is beyond its bound."""
_EXEMPLAR_NS = 60_000_000_000
_KEYS = (SERVICE_NAME, GEN_AI_OPERATION, GEN_AI_PROVIDER, GEN_AI_MODEL, ERROR_TYPE)

Labels = tuple[str, ...]
"""Values of `_KEYS`; the last is empty for a success."""


@dataclass(slots=True)
class _Exemplar:
    value: float
    time_unix_ns: int
    trace_id: bytes
    span_id: bytes


@dataclass(slots=True)
class _Histogram:
    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    exemplars: dict[int, _Exemplar] = field(default_factory=dict)
    sum: float = 0.0

    def add(self, value: float, span: trace_pb2.Span) -> bool:
        """Count a value; tell whether its span now stands for its bucket."""
        place = bisect_left(self.bounds, value)
        self.counts[place] += 1
        self.sum += value
        held = self.exemplars.get(place)
        end_ns = span.end_time_unix_nano
        if held is not None and value <= held.value and end_ns - held.time_unix_ns < _EXEMPLAR_NS:
            return False
        self.exemplars[place] = _Exemplar(value, end_ns, span.trace_id, span.span_id)
        return True


class SpanMetrics:
    """Counts requests; `own_samples` hands them to the exporters."""

    def __init__(
        self, max_series: int = MAX_SERIES, now_unix_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._max_series = max_series
        self._now_unix_ns = now_unix_ns
        self._start_unix_ns = now_unix_ns()
        self._series: dict[tuple[str, Labels], _Histogram] = {}
        self.dropped: Counter[str] = Counter()
        """Values that went to the overflow series, by reason."""

    def add(self, request: Request, service: str, span: trace_pb2.Span) -> bool:
        """Count a request; tell whether its span stands for a bucket now."""
        labels = (service, request.operation, request.provider, request.model, request.error)
        chosen = self._add(DURATION, labels, request.duration_s, span)
        first_s = request.first_token_s
        if request.error or first_s is None or not 0 <= first_s <= request.duration_s + 0.001:
            return chosen
        chosen |= self._add(TTFT, labels, first_s, span)
        tokens = request.output_tokens
        if tokens is not None and tokens >= 2:
            per_token_s = max(0.0, request.duration_s - first_s) / (tokens - 1)
            chosen |= self._add(TPOT, labels, per_token_s, span)
        return chosen

    def _add(self, metric: str, labels: Labels, value: float, span: trace_pb2.Span) -> bool:
        histogram = self._series.get((metric, labels))
        if histogram is None:
            histogram = self._new(metric, labels)
        return histogram.add(value, span)

    def _new(self, metric: str, labels: Labels) -> _Histogram:
        if len(self._series) >= self._max_series and labels:
            self.dropped["overflow"] += 1
            return self._series.get((metric, ())) or self._new(metric, ())
        bounds = BOUNDS[metric]
        histogram = _Histogram(bounds, [0] * (len(bounds) + 1))
        self._series[metric, labels] = histogram
        return histogram

    def own_samples(self) -> list[Sample]:
        """Return all histograms, and what went to the overflow series."""
        now = self._now_unix_ns()
        samples = [
            Sample(
                metric=metric,
                value=float(sum(histogram.counts)),
                time_unix_ns=now,
                attributes=_attributes(labels),
                start_unix_ns=self._start_unix_ns,
                explicit=_explicit(histogram),
            )
            for (metric, labels), histogram in self._series.items()
        ]
        for reason, count in self.dropped.items():
            keys = {PIPE: "spanmetrics", REASON: reason}
            samples.append(Sample("tailcause.pipe.dropped", count, now, keys, self._start_unix_ns))
        return samples


def _attributes(labels: Labels) -> dict[str, str | bool]:
    if not labels:
        return {OVERFLOW: True, SOURCE: "spans"}
    named = {key: value for key, value in zip(_KEYS, labels, strict=True) if value}
    return {**named, SOURCE: "spans"}


def _explicit(histogram: _Histogram) -> ExplicitBuckets:
    exemplars = tuple(
        Exemplar(one.value, one.time_unix_ns, one.trace_id.hex(), one.span_id.hex())
        for _, one in sorted(histogram.exemplars.items())
    )
    return ExplicitBuckets(histogram.bounds, tuple(histogram.counts), histogram.sum, exemplars)
