"""The codec turns OTLP bytes into our types and back, and refuses what is not OTLP."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from agent.errors import MalformedError, TooLargeError
from agent.otlp.codec import (
    JSON,
    PROTOBUF,
    Signal,
    count_items,
    encode_samples,
    inflate,
    parse,
    points,
    skipped_points,
    spans,
)
from agent.otlp.ids import drop_bad_spans
from agent.telemetry.model import (
    Exemplar,
    ExplicitBuckets,
    Link,
    Sample,
    SpanKind,
    SpanStatus,
)

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"
PARENT_ID = "00f067aa0ba902b7"


def trace_tree(**overrides: object) -> dict[str, object]:
    """Return an OTLP/JSON traces request with one span, some of its fields replaced."""
    span: dict[str, object] = {
        "traceId": TRACE_ID,
        "spanId": SPAN_ID,
        "parentSpanId": PARENT_ID,
        "name": "POST /v1/completions",
        "kind": 2,
        "startTimeUnixNano": "1700000000000000000",
        "endTimeUnixNano": 1700000000250000000,
        "attributes": [
            {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "64"}},
            {"key": "gen_ai.latency.time_to_first_token", "value": {"doubleValue": 0.031}},
            {"key": "tailcause.cache.hit", "value": {"boolValue": True}},
            {"key": "tags", "value": {"arrayValue": {"values": [
                {"stringValue": "a"}, {"intValue": 7}]}}},
        ],
        "links": [{"traceId": TRACE_ID, "spanId": PARENT_ID}],
        "status": {"code": 2},
    }  # fmt: skip
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "chat"}}]}
    scope_spans = [{"spans": [span | overrides]}]
    return {"resourceSpans": [{"resource": resource, "scopeSpans": scope_spans}]}


def parse_tree(tree: object) -> list[object]:
    """Return the spans of an OTLP/JSON tree."""
    return list(spans(parse(Signal.TRACES, json.dumps(tree).encode(), JSON)))


def test_json_span_has_every_field() -> None:
    """A span in OTLP/JSON arrives with hex ids, both integer spellings and all value types."""
    body = json.dumps(trace_tree()).encode()
    [span] = spans(parse(Signal.TRACES, body, JSON))
    assert (span.trace_id, span.span_id, span.parent_span_id) == (TRACE_ID, SPAN_ID, PARENT_ID)
    assert span.kind is SpanKind.SERVER
    assert span.status is SpanStatus.ERROR
    assert span.start_unix_ns == 1700000000000000000
    assert span.duration_s == 0.25
    assert span.attributes == {
        "gen_ai.usage.input_tokens": 64,
        "gen_ai.latency.time_to_first_token": 0.031,
        "tailcause.cache.hit": True,
        "tags": ("a", "7"),
    }
    assert span.links == (Link(TRACE_ID, PARENT_ID),)
    assert span.resource == {"service.name": "chat"}


def test_protobuf_equals_json() -> None:
    """The same request in both encodings gives equal spans."""
    message = parse(Signal.TRACES, json.dumps(trace_tree()).encode(), JSON)
    again = parse(Signal.TRACES, message.SerializeToString(), PROTOBUF)
    assert spans(again) == spans(message)


def test_unknown_json_fields_are_ignored() -> None:
    """A newer sender's extra field does no harm."""
    assert len(parse_tree(trace_tree(fieldOfTomorrow={"deep": [1]}))) == 1


@pytest.mark.parametrize("overrides", [{"startTimeUnixNano": "soon"}, {"attributes": 3}])
def test_bad_span_fields_are_malformed(overrides: dict[str, object]) -> None:
    """A field of another type rejects the batch."""
    with pytest.raises(MalformedError):
        parse_tree(trace_tree(**overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        {"traceId": TRACE_ID[:-2]},
        {"spanId": SPAN_ID + "00"},
        {"spanId": ""},
        {"traceId": "0" * 32},
        {"traceId": "zz" * 16},
        {"traceId": 7},
        {"traceId": None},
        {"parentSpanId": "abcd"},
        {"parentSpanId": "not hex"},
    ],
)
def test_a_bad_id_costs_its_span(overrides: dict[str, object]) -> None:
    """A wrong id rejects its span, says why and leaves the others; an empty parent is a root."""
    tree = trace_tree(**overrides)
    good = trace_tree(parentSpanId="")
    tree["resourceSpans"] += good["resourceSpans"]  # type: ignore[operator]
    message = parse(Signal.TRACES, json.dumps(tree).encode(), JSON)
    bad = drop_bad_spans(message)
    assert (bad.spans, count_items(message)) == (1, 1)
    assert "_id" in bad.reason


@pytest.mark.parametrize(
    "link", [{"traceId": TRACE_ID, "spanId": "ab"}, {"traceId": "x", "spanId": SPAN_ID}]
)
def test_a_bad_link_costs_the_link(link: dict[str, str]) -> None:
    """The span stays, with its other links."""
    tree = trace_tree(links=[{"traceId": TRACE_ID, "spanId": PARENT_ID}, link])
    message = parse(Signal.TRACES, json.dumps(tree).encode(), JSON)
    bad = drop_bad_spans(message)
    [span] = spans(message)
    assert (bad.spans, dict(bad.counts)) == (0, {"bad_link_id": 1})
    assert span.links == (Link(TRACE_ID, PARENT_ID),)


def test_ids_in_json_are_hex_of_any_case() -> None:
    """Upper-case digits are the same id."""
    message = parse(Signal.TRACES, json.dumps(trace_tree(traceId=TRACE_ID.upper())).encode(), JSON)
    assert drop_bad_spans(message).spans == 0
    assert spans(message)[0].trace_id == TRACE_ID


def test_bytes_in_json_are_base64() -> None:
    """A bytes attribute is base64 in JSON, unlike an id."""
    tree = trace_tree(attributes=[{"key": "raw", "value": {"bytesValue": "AP8="}}])
    message = parse(Signal.TRACES, json.dumps(tree).encode(), JSON)
    assert spans(message)[0].attributes == {"raw": "00ff"}


def test_bad_protobuf_id_is_told() -> None:
    """The id check holds for protobuf as it does for JSON."""
    message = trace_service_pb2.ExportTraceServiceRequest()
    span = message.resource_spans.add().scope_spans.add().spans.add()
    span.trace_id, span.span_id = b"short", bytes.fromhex(SPAN_ID)
    assert drop_bad_spans(message).reason == (
        "trace_id is no id of 16 bytes (32 hexadecimal digits in JSON)"
    )


def test_the_weight_of_a_sampled_span() -> None:
    """The threshold in the trace state tells how many spans a span stands for."""
    [tenth] = parse_tree(trace_tree(traceState="ot=th:e666,x=y"))
    [whole] = parse_tree(trace_tree())
    assert tenth.weight == pytest.approx(10, rel=0.001)  # type: ignore[attr-defined]
    assert whole.weight == 1.0  # type: ignore[attr-defined]


def test_explicit_buckets_and_exemplars_are_encoded() -> None:
    """A histogram with bounds of its own keeps them, and the spans that stand for its buckets."""
    exemplar = Exemplar(0.3, 1900, TRACE_ID, SPAN_ID)
    explicit = ExplicitBuckets((0.1, 1.0), (1, 2, 0), 0.7, (exemplar,))
    sample = Sample("gen_ai.server.request.duration", 3, 2000, {"a": "b"}, 1000, explicit=explicit)
    message = metrics_service_pb2.ExportMetricsServiceRequest.FromString(
        encode_samples([sample], {})
    )
    [point] = message.resource_metrics[0].scope_metrics[0].metrics[0].histogram.data_points
    assert (point.count, point.sum, point.start_time_unix_nano) == (3, 0.7, 1000)
    assert (list(point.explicit_bounds), list(point.bucket_counts)) == ([0.1, 1.0], [1, 2, 0])
    assert (point.exemplars[0].as_double, point.exemplars[0].trace_id.hex()) == (0.3, TRACE_ID)
    assert point.exemplars[0].span_id.hex() == SPAN_ID


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"x"', b"[" * 100_000, b"\xff", b"1e"]
)
def test_not_an_object_is_malformed(body: bytes) -> None:
    """JSON that is cut, deep or of another shape is refused."""
    with pytest.raises(MalformedError):
        parse(Signal.TRACES, body, JSON)


def test_nan_literal_is_malformed() -> None:
    """NaN is not JSON."""
    with pytest.raises(MalformedError, match="NaN"):
        parse(Signal.METRICS, b'{"resourceMetrics": NaN}', JSON)


def test_unknown_content_type_is_malformed() -> None:
    """Only the two content types of the specification are decoded."""
    with pytest.raises(MalformedError, match="text/plain"):
        parse(Signal.TRACES, b"", "text/plain")


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(Signal), st.sampled_from([JSON, PROTOBUF]))
def test_garbage_is_malformed_or_a_message(body: bytes, signal: Signal, content_type: str) -> None:
    """Any bytes either decode or raise `MalformedError`, nothing else."""
    try:
        message = parse(signal, body, content_type)
    except MalformedError:
        return
    assert count_items(message) >= 0


_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["resourceSpans", "scopeSpans", "spans", "traceId", "attributes"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["resourceSpans", "resourceMetrics", "resourceLogs"]), _json_values)
def test_garbage_json_is_malformed_or_a_message(key: str, value: object) -> None:
    """Any JSON of about the right shape either decodes or raises `MalformedError`."""
    for signal in Signal:
        try:
            message = parse(signal, json.dumps({key: value}).encode(), JSON)
        except MalformedError:
            continue
        assert count_items(message) >= 0


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=100))
def test_inflate_garbage(body: bytes) -> None:
    """Damaged gzip raises `MalformedError`, nothing else."""
    try:
        inflated = inflate(body, "gzip", 1000)
    except MalformedError:
        return
    assert len(inflated) <= 1000


def test_inflate_round_trip() -> None:
    """Gzip of several members is inflated whole."""
    body = gzip.compress(b"abc") + gzip.compress(b"defg")
    assert inflate(body, "gzip", 7) == b"abcdefg"


def test_inflate_stops_a_bomb() -> None:
    """A small body that inflates past the limit is refused."""
    with pytest.raises(TooLargeError):
        inflate(gzip.compress(bytes(10_000_000)), "gzip", 1_000_000)


def test_inflate_bounds_members() -> None:
    """A body of very many empty members cannot keep the decoder busy."""
    with pytest.raises(MalformedError, match="members"):
        inflate(gzip.compress(b"") * 10_000, "gzip", 1000)


def test_inflate_truncated_is_malformed() -> None:
    """A stream that is cut short is refused."""
    with pytest.raises(MalformedError, match="cut short"):
        inflate(gzip.compress(b"abc" * 100)[:-4], "gzip", 1000)


def test_inflate_unknown_encoding() -> None:
    """Only gzip is offered."""
    with pytest.raises(MalformedError, match="br"):
        inflate(b"x", "br", 10)


def test_inflate_plain_is_bounded() -> None:
    """The limit holds for plain bodies too."""
    with pytest.raises(TooLargeError):
        inflate(b"x" * 11, "", 10)


SAMPLES = [
    Sample("container.cpu.time", 1.5, 2000, {"tailcause.cgroup.path": "/a"}, start_unix_ns=1000),
    Sample("container.cpu.time", 2.5, 2000, {"tailcause.cgroup.path": "/b"}, start_unix_ns=1000),
    Sample("tailcause.cgroup.cpu.limit", 0.2, 2000, {"tailcause.cgroup.path": "/a"}),
    Sample("system.memory.limit", 1024.0, 2000),
]


def test_samples_round_trip() -> None:
    """Samples come back as points with their resource, and counters are told from levels."""
    message = parse(Signal.METRICS, encode_samples(SAMPLES, {"host.name": "node-1"}), PROTOBUF)
    assert [(p.metric, p.value, p.cumulative, dict(p.attributes)) for p in points(message)] == [
        ("container.cpu.time", 1.5, True, {"tailcause.cgroup.path": "/a"}),
        ("container.cpu.time", 2.5, True, {"tailcause.cgroup.path": "/b"}),
        ("tailcause.cgroup.cpu.limit", 0.2, False, {"tailcause.cgroup.path": "/a"}),
        ("system.memory.limit", 1024.0, False, {}),
    ]
    assert {tuple(p.resource.items()) for p in points(message)} == {(("host.name", "node-1"),)}


def test_samples_are_grouped_with_unit_and_start() -> None:
    """One metric per name carries the catalogue's unit and the counters' start time."""
    message = metrics_service_pb2.ExportMetricsServiceRequest.FromString(
        encode_samples(SAMPLES, {})
    )
    metrics = message.resource_metrics[0].scope_metrics[0].metrics
    assert [(m.name, m.unit) for m in metrics] == [
        ("container.cpu.time", "s"),
        ("tailcause.cgroup.cpu.limit", "{cpu}"),
        ("system.memory.limit", "By"),
    ]
    assert metrics[0].sum.is_monotonic
    assert metrics[0].sum.data_points[0].start_time_unix_nano == 1000
    assert not metrics[2].sum.is_monotonic


def test_unknown_metric_is_a_key_error() -> None:
    """A name outside the catalogue cannot be exported."""
    with pytest.raises(KeyError):
        encode_samples([Sample("no.such.metric", 1.0, 1)], {})


def test_histograms_and_deltas_are_skipped_and_counted() -> None:
    """What has no single cumulative number is left out, never read as one."""
    tree = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [
        {"name": "h", "histogram": {"dataPoints": [{"count": "3"}]}},
        {"name": "d", "sum": {"aggregationTemporality": 1, "dataPoints": [{"asInt": "3"}]}},
        {"name": "gap", "gauge": {"dataPoints": [{"asDouble": 0, "flags": 1}]}},
        {"name": "g", "gauge": {"dataPoints": [{"asInt": "3", "timeUnixNano": "5"}]}},
    ]}]}]}  # fmt: skip
    message = parse(Signal.METRICS, json.dumps(tree).encode(), JSON)
    assert [(p.metric, p.value) for p in points(message)] == [("g", 3.0)]
    assert skipped_points(message) == 3
    assert count_items(message) == 4


def test_spans_of_another_signal_are_none() -> None:
    """A metrics request has no spans, and a traces request no points."""
    assert spans(parse(Signal.METRICS, b"", PROTOBUF)) == []
    assert points(parse(Signal.TRACES, b"", PROTOBUF)) == []
