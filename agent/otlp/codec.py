"""The one OTLP codec: bytes to messages, messages to our types, our samples to bytes."""

import json
import zlib
from enum import StrEnum
from typing import Any, TypeAlias

from google.protobuf import message as protobuf
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from agent.errors import MalformedError, TooLargeError
from agent.otlp import decode, ids
from agent.otlp.encode import encode_samples
from agent.telemetry.model import Point, Span

__all__ = [
    "JSON",
    "PROTOBUF",
    "MalformedError",
    "Message",
    "Signal",
    "TooLargeError",
    "count_items",
    "encode_samples",
    "inflate",
    "parse",
    "points",
    "skipped_points",
    "spans",
]

PROTOBUF = "application/x-protobuf"
JSON = "application/json"

Message: TypeAlias = (
    trace_service_pb2.ExportTraceServiceRequest
    | metrics_service_pb2.ExportMetricsServiceRequest
    | logs_service_pb2.ExportLogsServiceRequest
)

_GZIP_WINDOW = 31  # zlib's way to say: a gzip header, and the largest window
_CHUNK_BYTES = 1 << 20
_MOST_MEMBERS = 256


class Signal(StrEnum):
    """The three kinds of OTLP request; the values are the last part of their paths."""

    TRACES = "traces"
    METRICS = "metrics"
    LOGS = "logs"


def parse(signal: Signal, body: bytes, content_type: str) -> Message:
    """Return the request in a body, protobuf or OTLP/JSON; raise `MalformedError` otherwise.

    Ids are not checked: see `ids.drop_bad_spans`.
    """
    message = _empty(signal)
    if content_type == PROTOBUF:
        _parse_protobuf(message, body)
    elif content_type == JSON:
        _parse_json(message, body)
    else:
        raise MalformedError(f"content type {content_type!r}: send {PROTOBUF} or {JSON}")
    return message


def _empty(signal: Signal) -> Message:
    if signal is Signal.TRACES:
        return trace_service_pb2.ExportTraceServiceRequest()
    if signal is Signal.METRICS:
        return metrics_service_pb2.ExportMetricsServiceRequest()
    return logs_service_pb2.ExportLogsServiceRequest()


def _parse_protobuf(message: Message, body: bytes) -> None:
    try:
        message.ParseFromString(body)
    except protobuf.DecodeError as exc:
        raise MalformedError("the body is not a protobuf message of this signal") from exc


def _parse_json(message: Message, body: bytes) -> None:
    from google.protobuf import json_format  # noqa: PLC0415  most senders never need it

    try:
        tree = json.loads(body, parse_constant=_refuse_constant)
        if not isinstance(tree, dict):
            raise MalformedError("the JSON body must be an object")
        ids.hex_to_base64(tree)
        json_format.ParseDict(tree, message, ignore_unknown_fields=True)
    except (json_format.ParseError, ValueError, TypeError, AttributeError, RecursionError) as exc:
        raise MalformedError(f"the body is not OTLP/JSON: {_short(exc)}") from exc


def _refuse_constant(name: str) -> Any:
    raise MalformedError(f'{name} is not JSON: write it as the string "{name}"')


def _short(exc: Exception) -> str:
    text = str(exc).encode("ascii", "backslashreplace").decode()
    return text if len(text) <= 200 else text[:200] + "…"


def inflate(body: bytes, encoding: str, limit: int) -> bytes:
    """Return a body without its content encoding (gzip or none), of at most `limit` bytes.

    Raises `TooLargeError` past the limit, without inflating further, and `MalformedError` for
    an unknown encoding or for a damaged or truncated stream.
    """
    if encoding in {"", "identity"}:
        if len(body) > limit:
            raise TooLargeError(f"the body has more than {limit} bytes: send smaller batches")
        return body
    if encoding != "gzip":
        raise MalformedError(f"content encoding {encoding!r}: send gzip or none")
    return _gunzip(body, limit)


def _gunzip(body: bytes, limit: int) -> bytes:
    inflated = bytearray()
    for _ in range(_MOST_MEMBERS):  # members may follow each other (RFC 1952, section 2.2)
        body = _gunzip_member(body, inflated, limit)
        if not body:
            return bytes(inflated)
    raise MalformedError(f"the gzip stream has more than {_MOST_MEMBERS} members")


def _gunzip_member(body: bytes, inflated: bytearray, limit: int) -> bytes:
    """Append one member's content to `inflated` and return the bytes that follow it."""
    member = zlib.decompressobj(_GZIP_WINDOW)
    while not member.eof:
        try:
            part = member.decompress(body, min(_CHUNK_BYTES, limit - len(inflated) + 1))
        except zlib.error as exc:
            raise MalformedError("the gzip stream is damaged") from exc
        body = member.unconsumed_tail
        if not part and not body and not member.eof:
            raise MalformedError("the gzip stream is cut short")
        inflated += part
        if len(inflated) > limit:
            raise TooLargeError(f"the body inflates past {limit} bytes: send smaller batches")
    return member.unused_data


def spans(message: Message) -> list[Span]:
    """Return the spans of a traces request (of another kind: none)."""
    if isinstance(message, trace_service_pb2.ExportTraceServiceRequest):
        return decode.spans(message)
    return []


def points(message: Message) -> list[Point]:
    """Return the gauge and sum numbers of a metrics request (of another kind: none)."""
    if isinstance(message, metrics_service_pb2.ExportMetricsServiceRequest):
        return decode.points(message)
    return []


def skipped_points(message: Message) -> int:
    """Count the data points of a metrics request that `points` cannot represent."""
    if isinstance(message, metrics_service_pb2.ExportMetricsServiceRequest):
        return decode.count_points(message) - len(decode.points(message))
    return 0


def count_items(message: Message) -> int:
    """Count the spans, data points or log records of a request."""
    if isinstance(message, trace_service_pb2.ExportTraceServiceRequest):
        return sum(
            len(scope.spans) for part in message.resource_spans for scope in part.scope_spans
        )
    if isinstance(message, metrics_service_pb2.ExportMetricsServiceRequest):
        return decode.count_points(message)
    return sum(
        len(scope.log_records) for part in message.resource_logs for scope in part.scope_logs
    )
