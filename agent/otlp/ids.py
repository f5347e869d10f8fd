"""Trace and span ids: hex in OTLP/JSON, raw bytes in protobuf, and never of another length.

Source: OTLP specification, section "JSON Protobuf Encoding".
"""

import base64
from typing import Any

from opentelemetry.proto.trace.v1 import trace_pb2

from agent.errors import MalformedError

TRACE_ID_BYTES = 16
SPAN_ID_BYTES = 8

_JSON_KEYS = frozenset(
    ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")
)


def hex_to_base64(tree: Any) -> None:
    """Rewrite, in place, every id of a parsed OTLP/JSON document to the base64 of protobuf JSON."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            for key, value in node.items():
                if key in _JSON_KEYS:
                    node[key] = _base64(key, value)
                elif isinstance(value, dict | list):
                    pending.append(value)
        elif isinstance(node, list):
            pending.extend(item for item in node if isinstance(item, dict | list))


def _base64(key: str, value: Any) -> str | None:
    if value is None:
        return None
    try:
        return base64.b64encode(bytes.fromhex(value)).decode()
    except (TypeError, ValueError) as exc:
        raise MalformedError(f"{key} must be a string of hexadecimal digits") from exc


def check_span_ids(span: trace_pb2.Span) -> None:
    """Raise `MalformedError` unless the ids of a span and its links have their length."""
    _check("trace_id", span.trace_id, TRACE_ID_BYTES)
    _check("span_id", span.span_id, SPAN_ID_BYTES)
    if span.parent_span_id:
        _check_length("parent_span_id", span.parent_span_id, SPAN_ID_BYTES)
    for link in span.links:
        _check("trace_id of a link", link.trace_id, TRACE_ID_BYTES)
        _check("span_id of a link", link.span_id, SPAN_ID_BYTES)


def _check(name: str, value: bytes, length: int) -> None:
    _check_length(name, value, length)
    if not any(value):
        raise MalformedError(f"{name} is all zero, which the specification calls invalid")


def _check_length(name: str, value: bytes, length: int) -> None:
    if len(value) != length:
        raise MalformedError(f"{name} has {len(value)} bytes instead of {length}")
