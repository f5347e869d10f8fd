"""How spans and points lie in Parquet: columns to query by, the rest as msgpack."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from agent.telemetry.model import AttributeValue, Link, Point, Span, SpanKind, SpanStatus

_REPEATED = pa.dictionary(pa.int32(), pa.string())
_REPEATED_BYTES = pa.dictionary(pa.int32(), pa.binary())

SPANS = pa.schema(
    [
        ("trace_id", pa.string()),
        ("span_id", pa.string()),
        ("parent_span_id", pa.string()),
        ("name", _REPEATED),
        ("kind", _REPEATED),
        ("start_unix_ns", pa.int64()),
        ("end_unix_ns", pa.int64()),
        ("status", _REPEATED),
        ("attributes", pa.binary()),
        ("links", pa.binary()),
        ("resource", _REPEATED_BYTES),
    ]
)
POINTS = pa.schema(
    [
        ("metric", _REPEATED),
        ("value", pa.float64()),
        ("time_unix_ns", pa.int64()),
        ("attributes", _REPEATED_BYTES),
        ("resource", _REPEATED_BYTES),
        ("cumulative", pa.bool_()),
    ]
)

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_read_attributes = msgspec.msgpack.Decoder(dict[str, AttributeValue]).decode
_read_links = msgspec.msgpack.Decoder(tuple[Link, ...]).decode


def spans_table(spans: Sequence[Span]) -> pa.Table:
    """Spans as an Arrow table of schema `SPANS`."""
    return pa.table(
        {
            "trace_id": [span.trace_id for span in spans],
            "span_id": [span.span_id for span in spans],
            "parent_span_id": [span.parent_span_id for span in spans],
            "name": [span.name for span in spans],
            "kind": [span.kind.value for span in spans],
            "start_unix_ns": [span.start_unix_ns for span in spans],
            "end_unix_ns": [span.end_unix_ns for span in spans],
            "status": [span.status.value for span in spans],
            "attributes": [_encode(span.attributes) for span in spans],
            "links": [_encode(span.links) for span in spans],
            "resource": _shared(span.resource for span in spans),
        },
        schema=SPANS,
    )


def points_table(points: Sequence[Point]) -> pa.Table:
    """Points as an Arrow table of schema `POINTS`."""
    return pa.table(
        {
            "metric": [point.metric for point in points],
            "value": [point.value for point in points],
            "time_unix_ns": [point.time_unix_ns for point in points],
            "attributes": [_encode(point.attributes) for point in points],
            "resource": _shared(point.resource for point in points),
            "cumulative": [point.cumulative for point in points],
        },
        schema=POINTS,
    )


def read_spans(table: pa.Table) -> Iterator[Span]:
    """Return the spans of a table of schema `SPANS`; resources that are equal are one object."""
    cache: dict[bytes, dict[str, AttributeValue]] = {}
    for row in table.to_pylist():
        yield Span(
            trace_id=row["trace_id"],
            span_id=row["span_id"],
            parent_span_id=row["parent_span_id"],
            name=row["name"],
            kind=SpanKind(row["kind"]),
            start_unix_ns=row["start_unix_ns"],
            end_unix_ns=row["end_unix_ns"],
            status=SpanStatus(row["status"]),
            attributes=_read_attributes(row["attributes"]),
            links=_read_links(row["links"]),
            resource=_cached(cache, row["resource"]),
        )


def read_points(table: pa.Table) -> Iterator[Point]:
    """Return the points of a table of schema `POINTS`."""
    cache: dict[bytes, dict[str, AttributeValue]] = {}
    for row in table.to_pylist():
        yield Point(
            metric=row["metric"],
            value=row["value"],
            time_unix_ns=row["time_unix_ns"],
            attributes=_cached(cache, row["attributes"]),
            resource=_cached(cache, row["resource"]),
            cumulative=row["cumulative"],
        )


def _cached(cache: dict[bytes, dict[str, AttributeValue]], raw: bytes) -> Any:
    if raw not in cache:
        cache[raw] = _read_attributes(raw)
    return cache[raw]


def _shared(resources: Iterable[Any]) -> list[bytes]:
    """Encode each distinct object once; a batch shares a handful of resources."""
    known: dict[int, tuple[Any, bytes]] = {}
    encoded = []
    for resource in resources:
        entry = known.get(id(resource))
        if entry is None:
            entry = known[id(resource)] = (resource, _encode(resource))
        encoded.append(entry[1])
    return encoded
