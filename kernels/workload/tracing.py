"""OpenTelemetry set-up: who we are, where spans go, and what happens when nobody takes them."""

import logging
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Tracer

from kernels.workload.ids import ReservedIds

log = logging.getLogger(__name__)

QUEUE_SPANS = 16_384  # half a minute of a busy server, while the collector restarts
BATCH_SPANS = 2_048
SCHEDULE_MS = 500  # a detector with windows of 2 s cannot wait the default of 5 s
EXPORT_TIMEOUT_S = 3.0


@dataclass(frozen=True)
class Identity:
    """Whose spans these are; `instance` is the replica's name and survives deploys."""

    service: str
    instance: str
    model: str
    version: str
    revision: str


class CountingExporter(SpanExporter):
    """Passes spans on; a failure costs the spans, a count and one log line, nothing else."""

    def __init__(self, inner: SpanExporter, endpoint: str) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._failing = False
        self.lost_spans = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch; log when exports begin to fail and when they work again."""
        result = self._inner.export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if failed:
            self.lost_spans += len(spans)
        if failed is not self._failing:
            self._failing = failed
            self._report(failed)
        return result

    def _report(self, failed: bool) -> None:
        fields = {"endpoint": self._endpoint, "lost_spans": self.lost_spans}
        if failed:
            log.warning("span export fails, serving goes on", extra={"fields": fields})
        else:
            log.info("span export works again", extra={"fields": fields})

    def shutdown(self) -> None:
        """Shut the inner exporter down."""
        self._inner.shutdown()


class Tracing:
    """The process's tracer; spans made before `start_export` go nowhere."""

    def __init__(self, identity: Identity) -> None:
        # Every request is a measurement: a caller's sampling decision must not hide it.
        self.ids = ReservedIds()
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=_resource(identity),
            shutdown_on_exit=False,
            id_generator=self.ids,
        )
        self._processor: BatchSpanProcessor | None = None
        self._exporter: CountingExporter | None = None

    @property
    def tracer(self) -> Tracer:
        """The tracer of the server's own spans."""
        return self._provider.get_tracer("tailcause.workload")

    @property
    def lost_spans(self) -> int:
        """Spans that could not be exported."""
        return self._exporter.lost_spans if self._exporter else 0

    def start_export(self, otlp_url: str) -> None:
        """Send spans to `otlp_url`/v1/traces from now on."""
        _silence_sdk_logs()
        endpoint = f"{otlp_url.rstrip('/')}/v1/traces"
        inner = OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_TIMEOUT_S)
        self._exporter = CountingExporter(inner, endpoint)
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=QUEUE_SPANS,
            schedule_delay_millis=SCHEDULE_MS,
            max_export_batch_size=BATCH_SPANS,
        )
        self._provider.add_span_processor(self._processor)

    def stop(self, limit_s: float) -> bool:
        """Flush and stop within `limit_s`; False when spans were left behind."""
        if self._processor is None:
            return True
        # The SDK's shutdown waits up to 30 s for a collector that hangs; its threads are daemons.
        flush = threading.Thread(target=self._processor.shutdown, name="flush", daemon=True)
        flush.start()
        flush.join(limit_s)
        return not flush.is_alive()


def _silence_sdk_logs() -> None:
    """Leave it to CountingExporter to say once what the SDK logs several times per batch."""
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())


def _resource(identity: Identity) -> Resource:
    return Resource.create(
        {
            "service.name": identity.service,
            "service.version": identity.version,
            "service.instance.id": identity.instance,
            "vcs.ref.head.revision": identity.revision,
            "process.pid": os.getpid(),
            "host.name": socket.gethostname(),
        }
    )
