"""HTTP on the loopback: status, series, incidents, reports; every answer is bounded."""

import json
from collections.abc import Awaitable, Callable
from importlib import import_module

import msgspec
from aiohttp import web

from detector.analysis import Analyst
from detector.errors import NotFoundError, StorageError
from detector.incidents.database import IncidentDatabase
from detector.model import Report
from detector.page import render_page
from detector.pipeline import Pipeline

MOST_SERIES = 200
MOST_INCIDENTS = 200
_TEXT_WIDTH = 100

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

RENDERERS: dict[str, tuple[str, str]] = {
    "html": ("detector.report.html", "text/html"),
    "md": ("detector.report.markdown", "text/markdown"),
    "txt": ("detector.report.terminal", "text/plain"),
}
"""Suffix of a report's address: the module that renders it, and its content type."""


class Api:
    """Read-only views on the pipeline and the incident database."""

    def __init__(self, pipeline: Pipeline, analyst: Analyst, database: IncidentDatabase) -> None:
        self._pipeline = pipeline
        self._analyst = analyst
        self._database = database

    def application(self) -> web.Application:
        """Return the aiohttp application."""
        app = web.Application(middlewares=[_errors])
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/healthz", self._health),
                web.get("/api/v1/status", self._status),
                web.get("/api/v1/series", self._series),
                web.get("/api/v1/incidents", self._incidents),
                web.get("/api/v1/incidents/{id}", self._incident),
                web.get("/api/v1/incidents/{id}/snapshot", self._snapshot),
                web.get("/api/v1/incidents/{id}/report.{suffix}", self._rendered),
            ]
        )
        return app

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _status(self, _: web.Request) -> web.Response:
        return _json(self.status())

    def status(self) -> dict[str, object]:
        """Return what the service has taken in, lost and found so far."""
        watch, taken = self._pipeline.watch, self._pipeline.store.taken()
        progress = watch.progress()
        dropped = self._pipeline.dropped() + self._analyst.failures + self._database.dropped
        return {
            "spans": taken["spans"],
            "points": taken["points"],
            "duplicate_spans": taken["duplicate_spans"],
            "windows": watch.windows,
            "unknown_windows": watch.unknown_windows,
            "baseline_ready": progress >= 1.0,
            "baseline_progress": round(progress, 4),
            "dropped": dict(sorted(dropped.items())),
            "incidents_open": self._analyst.incidents_open,
        }

    async def _series(self, _: web.Request) -> web.Response:
        found = self._pipeline.series(MOST_SERIES)
        return _json([{"key": key, "windows": windows} for key, windows in found])

    async def _incidents(self, _: web.Request) -> web.Response:
        return _json(self._database.list(MOST_INCIDENTS))

    async def _incident(self, request: web.Request) -> web.Response:
        return _json(self._report(request))

    async def _snapshot(self, request: web.Request) -> web.Response:
        blob = self._database.packed_snapshot(request.match_info["id"])
        if blob is None:
            raise NotFoundError("the snapshot of this incident is not kept any more")
        return web.Response(body=blob, content_type="application/octet-stream")

    async def _rendered(self, request: web.Request) -> web.Response:
        suffix = request.match_info["suffix"]
        if suffix not in RENDERERS:
            raise NotFoundError(f"reports end in {', '.join(RENDERERS)}")
        module_name, content_type = RENDERERS[suffix]
        module, report = import_module(module_name), self._report(request)
        if suffix == "txt":
            text = module.render(report, width=_TEXT_WIDTH, color=False)
        else:
            text = module.render(report)
        return web.Response(text=text, content_type=content_type, headers=_SAFE)

    def _report(self, request: web.Request) -> Report:
        report = self._database.report(request.match_info["id"])
        if report is None:
            raise NotFoundError("there is no report of this incident yet")
        return report

    async def _page(self, _: web.Request) -> web.Response:
        series = self._pipeline.series(MOST_SERIES)
        text = render_page(self.status(), series, self._database.list(50))
        return web.Response(text=text, content_type="text/html", headers=_SAFE)


_SAFE = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer our own errors as JSON with a status."""
    try:
        return await handler(request)
    except NotFoundError as exc:
        status, text = 404, str(exc)
    except StorageError as exc:
        status, text = 503, str(exc)
    return web.json_response({"error": text}, status=status, dumps=json.dumps)
