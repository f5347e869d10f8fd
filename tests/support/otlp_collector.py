"""An OTLP/HTTP collector that keeps every span it gets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


def attributes(pairs: "list[KeyValue]") -> dict[str, object]:
    """Attributes as a plain dict of scalars."""
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in pairs}


@dataclass
class Collector:
    """What came in."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    resource: dict[str, object] = field(default_factory=dict)

    def named(self, name: str) -> list[Span]:
        """Spans of one name, in order of arrival."""
        return [span for span in self.spans if span.name == name]

    async def take(self, request: web.Request) -> web.Response:
        """Keep one export."""
        message = ExportTraceServiceRequest.FromString(await request.read())
        for resource in message.resource_spans:
            self.resource = attributes(list(resource.resource.attributes))
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        body = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=body, content_type="application/x-protobuf")


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """Run a collector on a free port of the loopback."""
    collector = Collector()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield collector
    finally:
        await runner.cleanup()
