"""The answers of OTLP: partial success, and `google.rpc.Status` for errors, as HTTP body or gRPC trailer.

`google.rpc.Status` and `RetryInfo` are written by hand, because the package that holds the generated classes
is no dependency of ours.
Source: googleapis, google/rpc/status.proto and error_details.proto; protobuf's encoding guide.
"""

import json
from enum import IntEnum
from typing import TypeAlias

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from agent.otlp.codec import JSON, Signal

Response: TypeAlias = (
    trace_service_pb2.ExportTraceServiceResponse
    | metrics_service_pb2.ExportMetricsServiceResponse
    | logs_service_pb2.ExportLogsServiceResponse
)

_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"


class Code(IntEnum):
    """The gRPC status codes that OTLP answers with."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


def error_body(code: Code, text: str, content_type: str) -> bytes:
    """Return a `google.rpc.Status` in the encoding of the request."""
    if content_type == JSON:
        return json.dumps({"code": int(code), "message": text}).encode()
    return bytes((0x08, code)) + _field(2, text.encode())


def error_details(code: Code, text: str, retry_after_s: float | None) -> bytes:
    """Return a `google.rpc.Status` for the trailer `grpc-status-details-bin`, with RetryInfo where a client may come back."""
    status = error_body(code, text, "")
    if retry_after_s is None:
        return status
    seconds, nanos = int(retry_after_s), int(retry_after_s % 1 * 1e9)
    duration = b"\x08" + varint(seconds) + (b"\x10" + varint(nanos) if nanos else b"")
    return status + _field(3, _field(1, _RETRY_INFO) + _field(2, _field(1, duration)))


def _field(number: int, content: bytes) -> bytes:
    """Return a length-delimited field."""
    return bytes((number << 3 | 2,)) + varint(len(content)) + content


def varint(number: int) -> bytes:
    """Return a number as protobuf writes lengths."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def success_body(signal: Signal, rejected: int, reason: str, content_type: str) -> bytes:
    """Return the export response of a signal, with a partial success if anything was rejected."""
    if content_type == JSON:
        return _success_json(signal, rejected, reason)
    response = empty_response(signal)
    if rejected or reason:
        setattr(response.partial_success, rejected_field(signal), rejected)
        response.partial_success.error_message = reason
    body: bytes = response.SerializeToString()
    return body


def _success_json(signal: Signal, rejected: int, reason: str) -> bytes:
    if not rejected and not reason:
        return b"{}"
    head, _, tail = rejected_field(signal).partition("_")
    key = head + "".join(part.title() for part in tail.split("_"))
    return json.dumps({"partialSuccess": {key: str(rejected), "errorMessage": reason}}).encode()


def empty_response(signal: Signal) -> Response:
    """Return the empty export response of a signal."""
    if signal is Signal.TRACES:
        return trace_service_pb2.ExportTraceServiceResponse()
    if signal is Signal.METRICS:
        return metrics_service_pb2.ExportMetricsServiceResponse()
    return logs_service_pb2.ExportLogsServiceResponse()


def rejected_field(signal: Signal) -> str:
    """Return the name of the field that counts rejected items."""
    return {
        Signal.TRACES: "rejected_spans",
        Signal.METRICS: "rejected_data_points",
        Signal.LOGS: "rejected_log_records",
    }[signal]
