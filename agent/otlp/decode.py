"""From OTLP messages to our own spans and points."""

import json
from collections.abc import Iterable

from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from agent.otlp.tracestate import adjusted_count
from agent.telemetry.model import (
    Attributes,
    AttributeValue,
    Link,
    Point,
    Span,
    SpanKind,
    SpanStatus,
)

_KINDS = (
    SpanKind.UNSPECIFIED,
    SpanKind.INTERNAL,
    SpanKind.SERVER,
    SpanKind.CLIENT,
    SpanKind.PRODUCER,
    SpanKind.CONSUMER,
)
_STATUSES = (SpanStatus.UNSET, SpanStatus.OK, SpanStatus.ERROR)
_CUMULATIVE = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
_NO_VALUE = metrics_pb2.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK


def spans(message: trace_service_pb2.ExportTraceServiceRequest) -> list[Span]:
    """Return the spans of a request; all spans of one resource share one attribute mapping."""
    result: list[Span] = []
    for resource_spans in message.resource_spans:
        resource = attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            result.extend(_span(span, resource) for span in scope_spans.spans)
    return result


def _span(span: trace_pb2.Span, resource: Attributes) -> Span:
    return Span(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex(),
        name=span.name,
        kind=_KINDS[span.kind] if 0 <= span.kind < len(_KINDS) else SpanKind.UNSPECIFIED,
        start_unix_ns=span.start_time_unix_nano,
        end_unix_ns=span.end_time_unix_nano,
        status=_status(span),
        attributes=attributes(span.attributes),
        links=tuple(Link(link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        resource=resource,
        weight=adjusted_count(span.trace_state) if span.trace_state else 1.0,
    )


def _status(span: trace_pb2.Span) -> SpanStatus:
    code = span.status.code
    return _STATUSES[code] if 0 <= code < len(_STATUSES) else SpanStatus.UNSET


def points(message: metrics_service_pb2.ExportMetricsServiceRequest) -> list[Point]:
    """Return the numbers of gauges and sums, not of histograms or deltas."""
    result: list[Point] = []
    for resource_metrics in message.resource_metrics:
        resource = attributes(resource_metrics.resource.attributes)
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                result.extend(_points(metric, resource))
    return result


def count_points(message: metrics_service_pb2.ExportMetricsServiceRequest) -> int:
    """Count the data points of every kind."""
    return sum(
        len(getattr(metric, field).data_points)
        for resource_metrics in message.resource_metrics
        for scope_metrics in resource_metrics.scope_metrics
        for metric in scope_metrics.metrics
        if (field := metric.WhichOneof("data")) is not None
    )


def _points(metric: metrics_pb2.Metric, resource: Attributes) -> Iterable[Point]:
    kind = metric.WhichOneof("data")
    if kind == "gauge":
        cumulative, data_points = False, metric.gauge.data_points
    elif kind == "sum" and metric.sum.aggregation_temporality == _CUMULATIVE:
        cumulative, data_points = metric.sum.is_monotonic, metric.sum.data_points
    else:
        return
    for point in data_points:
        field = point.WhichOneof("value")
        if field is None or point.flags & _NO_VALUE:
            continue
        yield Point(
            metric=metric.name,
            value=float(point.as_int if field == "as_int" else point.as_double),
            time_unix_ns=point.time_unix_nano,
            attributes=attributes(point.attributes),
            resource=resource,
            cumulative=cumulative,
        )


def attributes(pairs: Iterable[common_pb2.KeyValue]) -> dict[str, AttributeValue]:
    """Return attributes as a mapping; those without a value are left out, the last of a key wins."""
    result: dict[str, AttributeValue] = {}
    for pair in pairs:
        value = _value(pair.value)
        if value is not None:
            result[pair.key] = value
    return result


def _value(value: common_pb2.AnyValue) -> AttributeValue | None:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value
    if kind == "int_value":
        return value.int_value
    if kind == "double_value":
        return value.double_value
    if kind == "bool_value":
        return value.bool_value
    return _rare_value(kind, value)


def _rare_value(kind: str | None, value: common_pb2.AnyValue) -> AttributeValue | None:
    if kind == "array_value":
        items = (_value(item) for item in value.array_value.values)
        return tuple(_text(item) for item in items if item is not None)
    if kind == "kvlist_value":
        pairs = attributes(value.kvlist_value.values)
        return json.dumps({key: _text(item) for key, item in pairs.items()}, sort_keys=True)
    if kind == "bytes_value":
        return value.bytes_value.hex()
    return None


def _text(value: AttributeValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, tuple) else str(value)
