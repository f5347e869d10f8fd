"""What the agent does with OTLP that others send it: enrich the spans, add their ledgers, forward everything."""

from collections.abc import Awaitable, Callable

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from agent.enrich import Enricher
from agent.otlp.codec import Message, Signal, count_items
from agent.otlp.receiver import Verdict
from agent.otlp.sender import Sender

_NOWHERE = "the agent has no address to forward to: start it with --forward"


Annotate = Callable[[trace_service_pb2.ExportTraceServiceRequest], Awaitable[None]]


class Intake:
    """Accepts decoded requests from the receiver."""

    def __init__(
        self, enricher: Enricher, sender: Sender | None, annotate: Annotate | None = None
    ) -> None:
        self._enricher = enricher
        self._sender = sender
        self._annotate = annotate

    async def accept(self, signal: Signal, message: Message) -> Verdict:
        """Queue a request for the back end; reject its items where that is impossible."""
        items = count_items(message)
        if self._sender is None:
            return Verdict(rejected=items, reason=_NOWHERE)
        if isinstance(message, trace_service_pb2.ExportTraceServiceRequest):
            self._enricher.enrich(message)
            if self._annotate is not None:
                await self._annotate(message)
        if self._sender.offer(signal, message.SerializeToString(), items):
            return Verdict()
        return Verdict(rejected=items, reason="the request is larger than the agent's queue")
