"""Requests of a service as spans, sent at a pace: 200 in a batch, 12 attributes each, ids of their own.

A request is a trace of five spans: itself, its queue, prefill and decode, and a look-up in a database.
"""

import http.client
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

BATCH = 200
_MS = 1_000_000
_SHAPE = (
    ("POST /v1/completions", trace_pb2.Span.SPAN_KIND_SERVER, 0, 200),
    ("queue", trace_pb2.Span.SPAN_KIND_INTERNAL, 0, 4),
    ("sql SELECT tenants", trace_pb2.Span.SPAN_KIND_CLIENT, 4, 6),
    ("prefill", trace_pb2.Span.SPAN_KIND_INTERNAL, 6, 40),
    ("decode", trace_pb2.Span.SPAN_KIND_INTERNAL, 40, 200),
)
"""Name, kind, start and end in milliseconds of each span of a request; the first is the others' parent."""
_ATTRIBUTES: dict[str, str | int | float] = {
    "gen_ai.operation.name": "text_completion",
    "gen_ai.provider.name": "bench",
    "gen_ai.request.model": "bench-8b",
    "gen_ai.response.model": "bench-8b",
    "gen_ai.usage.input_tokens": 512,
    "gen_ai.usage.output_tokens": 128,
    "gen_ai.latency.time_in_queue": 0.004,
    "http.request.method": "POST",
    "http.route": "/v1/completions",
    "http.response.status_code": 200,
    "server.address": "127.0.0.1",
    "server.port": 8000,
}


def _any(value: str | float) -> common_pb2.AnyValue:
    if isinstance(value, str):
        return common_pb2.AnyValue(string_value=value)
    if isinstance(value, int):
        return common_pb2.AnyValue(int_value=value)
    return common_pb2.AnyValue(double_value=value)


def _pairs(values: dict[str, str | int | float]) -> list[common_pb2.KeyValue]:
    return [common_pb2.KeyValue(key=key, value=_any(value)) for key, value in values.items()]


@dataclass
class Requests:
    """Makes batches of spans of one process."""

    pid: int
    source: random.Random = field(default_factory=lambda: random.Random(7))

    def __post_init__(self) -> None:
        self._batch = trace_service_pb2.ExportTraceServiceRequest()
        resource = self._batch.resource_spans.add()
        known: dict[str, str | int | float] = {
            "service.name": "bench",
            "process.pid": self.pid,
            "host.name": socket.gethostname(),
        }
        resource.resource.attributes.extend(_pairs(known))
        scope = resource.scope_spans.add()
        for name, kind, *_ in BATCH // len(_SHAPE) * _SHAPE:
            span = scope.spans.add(name=name, kind=kind)
            span.attributes.extend(_pairs(_ATTRIBUTES))
        self._spans = scope.spans

    def batch(self) -> tuple[bytes, list[bytes]]:
        """Return a request of spans that have just ended, and their ids."""
        now = time.time_ns()
        for first in range(0, BATCH, len(_SHAPE)):
            begin = now - self.source.randrange(250, 350) * _MS
            self._request(self._spans[first : first + len(_SHAPE)], begin)
        return self._batch.SerializeToString(), [span.span_id for span in self._spans]

    def _request(self, spans: Sequence[trace_pb2.Span], begin: int) -> None:
        trace_id = self.source.randbytes(16)
        for span, (_, _, start, end) in zip(spans, _SHAPE, strict=True):
            span.trace_id, span.span_id = trace_id, self.source.randbytes(8)
            span.start_time_unix_nano = begin + start * _MS
            span.end_time_unix_nano = begin + end * _MS
            if span is not spans[0]:
                span.parent_span_id = spans[0].span_id


Send = Callable[[bytes], None]


@contextmanager
def over_http(url: str) -> Iterator[Send]:
    """Send by OTLP/HTTP over one connection."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)

    def send(body: bytes) -> None:
        connection.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
        answer = connection.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"the agent answers {answer.status}: {said[:200]!r}")

    try:
        yield send
    finally:
        connection.close()


@contextmanager
def over_grpc(target: str) -> Iterator[Send]:
    """Send by OTLP/gRPC over one channel."""
    with grpc.insecure_channel(target) as channel:
        call = trace_service_pb2_grpc.TraceServiceStub(channel)  # type: ignore[no-untyped-call]

        def send(body: bytes) -> None:
            call.Export(trace_service_pb2.ExportTraceServiceRequest.FromString(body), timeout=30)

        yield send


class Load:
    """Sends batches at a pace, on a thread of its own, while it is told to."""

    def __init__(self, requests: Requests, send: Send, per_s: int) -> None:
        self._requests, self._send = requests, send
        self._pause_s = BATCH / per_s
        self._going, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.sent: set[bytes] = set()
        self.failure: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._going.set()
        self._thread.join()

    def go(self, *, on: bool) -> None:
        """Send from now on, or stop."""
        if on:
            self._going.set()
        else:
            self._going.clear()

    def _work(self) -> None:
        due_s = time.monotonic()
        while self._going.wait() and not self._ended.is_set():
            due_s = max(due_s + self._pause_s, time.monotonic() - 1.0)
            body, ids = self._requests.batch()
            try:
                self._send(body)
            except Exception as exc:  # noqa: BLE001  told to whoever asks for the figures
                self.failure = exc
                return
            self.sent.update(ids)
            time.sleep(max(0.0, due_s - time.monotonic()))
