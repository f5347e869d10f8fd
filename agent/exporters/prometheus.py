"""Serves the metrics for Prometheus to scrape, at GET /metrics, in the format that it asks for."""

import asyncio

from aiohttp import web

from agent.exporters import exposition
from agent.exporters.base import ExporterContext
from agent.exporters.label_texts import LabelTexts
from agent.listen import Listener
from agent.telemetry.model import Sample

PORT = "metrics_port"


class PrometheusExporter:
    """Renders the board at each scrape, beside the event loop, one page at a time."""

    def __init__(self, context: ExporterContext) -> None:
        self._context = context
        self._texts = LabelTexts()
        self._rendering = asyncio.Lock()
        app = web.Application()
        app.router.add_get("/metrics", self._scrape)
        context.health.register(app)
        self._listener = Listener(app, context.config.listen)

    async def start(self, group: asyncio.TaskGroup) -> None:  # noqa: ARG002  it needs no task
        """Listen; the port is told in the context's `ports`."""
        port = await self._listener.start(self._context.config.metrics_port, "--metrics-port")
        self._context.ports[PORT] = port

    async def stop(self) -> None:
        """Stop listening."""
        await self._listener.stop()

    async def _scrape(self, request: web.Request) -> web.Response:
        openmetrics = exposition.wants_openmetrics(request.headers.get("Accept", ""))
        async with self._rendering:
            body = await asyncio.to_thread(
                self._render, self._context.board.snapshot(), openmetrics=openmetrics
            )
        kind = exposition.OPENMETRICS_TYPE if openmetrics else exposition.CLASSIC_TYPE
        return web.Response(body=body, headers={"Content-Type": kind, "Vary": "Accept"})

    def _render(self, samples: list[Sample], *, openmetrics: bool) -> bytes:
        self._texts.turn()
        return exposition.render(
            samples, self._context.resource, openmetrics=openmetrics, texts=self._texts
        )
