"""Trace and span ids: hex in OTLP/JSON, raw bytes in protobuf, and never of another length.

A span with a wrong id is left out and the rest of its batch is taken: the specification leaves the extent
to the server, partial success exists to say so, and one broken instrumentation must not cost the spans of
all others that share its exporter. A wrong id of a link costs the link.

Source: OTLP specification, section "JSON Protobuf Encoding"; trace.proto, comments of `Span`.
"""

import base64
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import message as protobuf
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

TRACE_ID_BYTES = 16
SPAN_ID_BYTES = 8
BAD_SPAN, BAD_LINK = "bad_span_id", "bad_link_id"

_JSON_KEYS = frozenset(
    ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")
)
_NO_TRACE, _NO_SPAN = bytes(TRACE_ID_BYTES), bytes(SPAN_ID_BYTES)
_NOT_HEX = base64.b64encode(b"?").decode()  # of no valid length, so that the span is left out


@dataclass
class BadIds:
    """What was left out of a request, and why the first of it was."""

    counts: Counter[str] = field(default_factory=Counter)
    reason: str = ""

    @property
    def spans(self) -> int:
        """Return how many spans were left out."""
        return self.counts[BAD_SPAN]


def hex_to_base64(tree: Any) -> None:
    """Rewrite, in place, every id of a parsed OTLP/JSON document to the base64 of protobuf JSON."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            for key, value in node.items():
                if key in _JSON_KEYS:
                    node[key] = _base64(value)
                elif isinstance(value, dict | list):
                    pending.append(value)
        elif isinstance(node, list):
            pending.extend(item for item in node if isinstance(item, dict | list))


def _base64(value: Any) -> str | None:
    if value is None:
        return None
    try:
        return base64.b64encode(bytes.fromhex(value)).decode()
    except (TypeError, ValueError):
        return _NOT_HEX


def drop_bad_spans(message: protobuf.Message) -> BadIds:
    """Take the spans and links with wrong ids out of a traces request, in place."""
    bad = BadIds()
    if not isinstance(message, trace_service_pb2.ExportTraceServiceRequest):
        return bad
    for resource_spans in message.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            wrong = [index for index, span in enumerate(scope_spans.spans) if _is_bad(span, bad)]
            for index in reversed(wrong):
                del scope_spans.spans[index]
    return bad


def _is_bad(span: trace_pb2.Span, bad: BadIds) -> bool:
    trace_id, span_id, parent_id = span.trace_id, span.span_id, span.parent_span_id
    if (
        len(trace_id) != TRACE_ID_BYTES
        or len(span_id) != SPAN_ID_BYTES
        or (parent_id and len(parent_id) != SPAN_ID_BYTES)
        or trace_id == _NO_TRACE
        or span_id == _NO_SPAN
    ):
        bad.counts[BAD_SPAN] += 1
        bad.reason = bad.reason or _why(span)
        return True
    if span.links:
        _drop_bad_links(span, bad)
    return False


def _drop_bad_links(span: trace_pb2.Span, bad: BadIds) -> None:
    wrong = [index for index, link in enumerate(span.links) if not _is_good_link(link)]
    for index in reversed(wrong):
        del span.links[index]
    if wrong:
        bad.counts[BAD_LINK] += len(wrong)
        bad.reason = bad.reason or f"{len(wrong)} links with a wrong id were left out"


def _is_good_link(link: trace_pb2.Span.Link) -> bool:
    return (
        len(link.trace_id) == TRACE_ID_BYTES
        and len(link.span_id) == SPAN_ID_BYTES
        and link.trace_id != _NO_TRACE
        and link.span_id != _NO_SPAN
    )


def _why(span: trace_pb2.Span) -> str:
    for name, value, length in (
        ("trace_id", span.trace_id, TRACE_ID_BYTES),
        ("span_id", span.span_id, SPAN_ID_BYTES),
        ("parent_span_id", span.parent_span_id, SPAN_ID_BYTES),
    ):
        optional = name == "parent_span_id" and not value
        if len(value) != length and not optional:
            return f"{name} is no id of {length} bytes ({2 * length} hexadecimal digits in JSON)"
        if not any(value) and not optional:
            return f"{name} is all zero, which the specification calls invalid"
    return "wrong id"
