"""A back end in a thread: when metrics came first, and which spans came."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from agent.telemetry.keys import CGROUP


class Backend:
    """What arrived."""

    def __init__(self) -> None:
        self.url = ""
        self._lock = threading.Lock()
        self.span_ids: Counter[bytes] = Counter()
        self.enriched = 0
        """Spans whose resource names a cgroup."""
        self.metrics = b""
        """The last request."""
        self.first_metrics = threading.Event()
        self.first_metrics_s = 0.0

    def take(self, path: str, body: bytes) -> None:
        """Take one request."""
        with self._lock:
            if path == "/v1/metrics":
                self._take_metrics(body)
            elif path == "/v1/traces":
                self._take_spans(body)

    def _take_metrics(self, body: bytes) -> None:
        self.metrics = body
        if not self.first_metrics.is_set():
            self.first_metrics_s = time.monotonic()
            self.first_metrics.set()

    def _take_spans(self, body: bytes) -> None:
        request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            known = any(pair.key == CGROUP for pair in resource.resource.attributes)
            for scope in resource.scope_spans:
                self.span_ids.update(span.span_id for span in scope.spans)
                self.enriched += known * len(scope.spans)

    def points(self) -> int:
        """Count the points of the last metrics request."""
        request = metrics_service_pb2.ExportMetricsServiceRequest.FromString(self.metrics)
        return sum(
            len(getattr(metric, metric.WhichOneof("data")).data_points)
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        )


@contextmanager
def backend() -> Iterator[Backend]:
    """Serve on a free port of the loopback."""
    taken = Backend()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            taken.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        taken.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield taken
        finally:
            server.shutdown()
            thread.join()
