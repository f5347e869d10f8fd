"""Serves the metrics for Prometheus to scrape, at GET /metrics, in the format that it asks for."""

import asyncio

from agent.exporters import exposition
from agent.exporters.base import ExporterContext
from agent.exporters.label_texts import LabelTexts
from agent.http.message import Request, Response
from agent.listen import Listener
from agent.telemetry.model import Sample

PORT = "metrics_port"


class PrometheusExporter:
    """Renders the board at each scrape, beside the event loop, one page at a time."""

    def __init__(self, context: ExporterContext) -> None:
        self._context = context
        self._texts = LabelTexts()
        self._rendering = asyncio.Lock()
        routes = {"/metrics": {"GET": self._scrape}, **context.health.routes()}
        self._listener = Listener(routes, context.config.listen)

    async def start(self, group: asyncio.TaskGroup) -> None:  # noqa: ARG002  it needs no task
        """Listen; the port is told in the context's `ports`."""
        port = await self._listener.start(self._context.config.metrics_port, "--metrics-port")
        self._context.ports[PORT] = port

    async def stop(self) -> None:
        """Stop listening."""
        await self._listener.stop()

    async def _scrape(self, request: Request) -> Response:
        openmetrics = exposition.wants_openmetrics(request.headers.get("accept", ""))
        async with self._rendering:
            await self._context.refresh()
            body = await asyncio.to_thread(
                self._render, self._context.board.snapshot(), openmetrics=openmetrics
            )
        kind = exposition.OPENMETRICS_TYPE if openmetrics else exposition.CLASSIC_TYPE
        return Response(200, body, kind, {"Vary": "Accept"})

    def _render(self, samples: list[Sample], *, openmetrics: bool) -> bytes:
        self._texts.turn()
        return exposition.render(
            samples, self._context.resource, openmetrics=openmetrics, texts=self._texts
        )
