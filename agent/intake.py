"""What the agent does with OTLP that others send it: enrich, measure, redact, sample, forward."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from agent import genai
from agent.enrich import Enricher
from agent.inflight import InFlight
from agent.otlp.admission import Verdict
from agent.otlp.codec import Message, Signal, count_items
from agent.otlp.sender import Sender
from agent.redact.redactor import Redactor
from agent.sampling.sampler import Sampler, service_of
from agent.spanmetrics import SpanMetrics

_REDACT_HERE_BYTES = 1 << 16  # a kilobyte of queries takes up to 1.4 ms
_NOWHERE = "the agent has no address to forward to: start it with --forward"


Annotate = Callable[[trace_service_pb2.ExportTraceServiceRequest], Awaitable[None]]


@dataclass(frozen=True)
class Stages:
    """What spans pass through, in this order; a stage that is None is left out."""

    enricher: Enricher
    annotate: Annotate | None = None
    metrics: SpanMetrics | None = None
    in_flight: InFlight | None = None
    redactor: Redactor | None = None
    sampler: Sampler | None = None


async def _redact(redactor: Redactor, message: Message) -> None:
    if message.ByteSize() <= _REDACT_HERE_BYTES:
        redactor.redact(message)
    else:
        await asyncio.to_thread(redactor.redact, message)


class Intake:
    """Accepts decoded requests from the receivers; stages and sender may be put in place of others at any time."""

    def __init__(self, stages: Stages, sender: Sender | None) -> None:
        self.stages = stages
        self.sender = sender

    async def accept(self, signal: Signal, message: Message) -> Verdict:
        """Queue a request for the back end; reject its items where that is impossible."""
        items = count_items(message)
        stages = self.stages
        exemplars: set[bytes] = set()
        if isinstance(message, trace_service_pb2.ExportTraceServiceRequest):
            stages.enricher.enrich(message)
            if stages.annotate is not None:
                await stages.annotate(message)
            exemplars = self._measure(message)
        if self.sender is None:
            return Verdict(rejected=items, reason=_NOWHERE)
        if stages.redactor is not None:
            await _redact(stages.redactor, message)
        if stages.sampler is not None and isinstance(
            message, trace_service_pb2.ExportTraceServiceRequest
        ):
            stages.sampler.offer(message, exemplars)
            return Verdict()
        return self._queue(signal, message, items)

    def _queue(self, signal: Signal, message: Message, items: int) -> Verdict:
        if self.sender is None:  # since a moment ago: the configuration was reloaded meanwhile
            return Verdict(rejected=items, reason=_NOWHERE)
        if self.sender.offer(signal, message.SerializeToString(), items):
            return Verdict()
        return Verdict(rejected=items, reason="the request is larger than the agent's queue")

    def _measure(self, message: trace_service_pb2.ExportTraceServiceRequest) -> set[bytes]:
        """Count requests, those in flight too; return the traces that stand as exemplars."""
        metrics, in_flight = self.stages.metrics, self.stages.in_flight
        exemplars: set[bytes] = set()
        for resource_spans in message.resource_spans:
            service = service_of(resource_spans)
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    if in_flight is not None:
                        in_flight.see(span, service)
                    request = genai.modernise(span)
                    if request is None or metrics is None:
                        continue
                    if metrics.add(request, service, span):
                        exemplars.add(span.trace_id)
        return exemplars
