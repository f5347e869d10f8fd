"""Requests become histograms with the bounds of the conventions, and exemplars that lead to their traces."""

import pytest
from opentelemetry.proto.trace.v1 import trace_pb2
from prometheus_client.parser import text_string_to_metric_families

from agent.exporters.exposition import render
from agent.genai import Request
from agent.otlp.codec import PROTOBUF, Signal, encode_samples, parse
from agent.spanmetrics import DURATION, OVERFLOW, TPOT, TTFT, SpanMetrics
from agent.telemetry.model import ExplicitBuckets, Sample


def request(
    duration_s: float = 0.5,
    first_s: float | None = 0.1,
    tokens: float | None = 11,
    error: str = "",
    model: str = "m",
) -> Request:
    """Return a request."""
    return Request("chat", "openai", model, duration_s, first_s, tokens, error)


def span(number: int = 1, end_s: float = 0.0) -> trace_pb2.Span:
    """Return the span of a request."""
    return trace_pb2.Span(
        trace_id=bytes([number]) * 16,
        span_id=bytes([number]) * 8,
        end_time_unix_nano=10**18 + round(end_s * 1e9),
    )


def of(metrics: SpanMetrics, name: str) -> tuple[Sample, ExplicitBuckets]:
    """Return the only sample of a metric."""
    [sample] = [one for one in metrics.own_samples() if one.metric == name]
    assert sample.explicit is not None
    return sample, sample.explicit


def test_one_request_in_three_histograms() -> None:
    """Duration, first token and time per token after the first land in their buckets."""
    metrics = SpanMetrics()
    metrics.add(request(), "chat-api", span())
    sample, buckets = of(metrics, DURATION)
    assert (sample.value, buckets.sum) == (1, 0.5)
    assert [
        bound for bound, count in zip(buckets.bounds, buckets.counts, strict=False) if count
    ] == [0.64]
    _, first = of(metrics, TTFT)
    assert [bound for bound, count in zip(first.bounds, first.counts, strict=False) if count] == [
        0.1
    ]
    _, token = of(metrics, TPOT)
    assert token.sum == pytest.approx(0.04)
    assert dict(sample.attributes) == {
        "service.name": "chat-api",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "tailcause.source": "spans",
    }


def test_a_bound_belongs_to_its_bucket_and_the_last_has_none() -> None:
    """Upper bounds are inclusive, as OTLP has them."""
    metrics = SpanMetrics()
    for duration_s in (0.01, 0.010001, 1000.0):
        metrics.add(request(duration_s, None), "a", span())
    _, buckets = of(metrics, DURATION)
    assert (buckets.counts[0], buckets.counts[1], buckets.counts[-1]) == (1, 1, 1)
    assert len(buckets.counts) == len(buckets.bounds) + 1


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (request(error="500"), {DURATION}),
        (request(first_s=None), {DURATION}),
        (request(first_s=0.6), {DURATION}),
        (request(tokens=1), {DURATION, TTFT}),
        (request(tokens=None), {DURATION, TTFT}),
    ],
)
def test_what_a_request_does_not_say_is_not_counted(asked: Request, found: set[str]) -> None:
    """A failure has a duration alone, one token has no time between tokens, nonsense is left out."""
    metrics = SpanMetrics()
    metrics.add(asked, "a", span())
    assert {sample.metric for sample in metrics.own_samples()} == found


def test_failures_are_a_series_of_their_own() -> None:
    """A quick refusal must not make a service look quick."""
    metrics = SpanMetrics()
    metrics.add(request(), "a", span())
    metrics.add(request(0.001, error="429"), "a", span())
    durations = [one for one in metrics.own_samples() if one.metric == DURATION]
    assert {str(one.attributes.get("error.type", "")) for one in durations} == {"", "429"}


def test_the_slowest_of_a_minute_stands_for_its_bucket() -> None:
    """A slower one replaces it, a quicker one only when it is a minute old."""
    metrics = SpanMetrics()
    steps = [(1, 0.50, 0), (2, 0.60, 1), (3, 0.60, 2), (4, 0.40, 70), (5, 3.0, 71)]
    chosen = [metrics.add(request(d, None), "a", span(n, end_s)) for n, d, end_s in steps]
    _, buckets = of(metrics, DURATION)
    assert chosen == [True, True, False, True, True]
    assert [(one.value, one.trace_id) for one in buckets.exemplars] == [
        (0.40, "04" * 16),
        (3.0, "05" * 16),
    ]
    assert buckets.exemplars[0].span_id == "04" * 8


def test_series_are_bounded() -> None:
    """Beyond the bound values are counted in one overflow series, so that totals stay right."""
    metrics = SpanMetrics(max_series=5)
    for number in range(20):
        metrics.add(request(first_s=None, model=f"m{number}"), "a", span())
    durations = [one for one in metrics.own_samples() if one.metric == DURATION]
    assert len(durations) == 6
    assert sum(one.value for one in durations) == 20
    [overflow] = [one for one in durations if OVERFLOW in one.attributes]
    assert overflow.value == 15
    assert metrics.dropped == {"overflow": 15}


def test_prometheus_and_otlp_carry_them() -> None:
    """Both ways out have the same counts; OTLP has the exemplar."""
    metrics = SpanMetrics()
    for duration_s in (0.005, 0.5, 0.5):
        metrics.add(request(duration_s, None), "a", span())
    samples = metrics.own_samples()
    [family] = [
        one
        for one in text_string_to_metric_families(render(samples, {}).decode())
        if one.name == "gen_ai_server_request_duration_seconds"
    ]
    below = {one.labels["le"]: one.value for one in family.samples if one.name.endswith("_bucket")}
    assert (below["0.01"], below["0.32"], below["0.64"], below["+Inf"]) == (1, 1, 3, 3)
    message = parse(Signal.METRICS, encode_samples(samples, {}), PROTOBUF)
    [point] = message.resource_metrics[0].scope_metrics[0].metrics[0].histogram.data_points
    assert (point.count, len(point.exemplars)) == (3, 2)
