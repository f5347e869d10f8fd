"""The life of a balancer process: accept, spread, watch, drain."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from kernels.balancer.backends import Backend, Backends
from kernels.balancer.health import watch
from kernels.balancer.proxy import Limits, Proxy
from kernels.workload.process import BACKLOG, listener, stop_signal

log = logging.getLogger(__name__)

DRAIN_S = 3.0
_POLL_S = 0.02
_CANCEL_S = 0.3


@dataclass(frozen=True)
class Options:
    """Where the balancer listens, and the replicas as (instance, URL)."""

    host: str
    port: int
    listen_fd: int | None
    replicas: Sequence[tuple[str, str]]
    limits: Limits = field(default_factory=Limits)


async def balance(options: Options, announce: Callable[[int, int], None]) -> int:
    """Serve until SIGTERM or SIGINT, then drain; `announce` gets pid and port."""
    stop = stop_signal()
    accepts_from = listener(options.host, options.port, options.listen_fd)
    backends = Backends([Backend(name, url.rstrip("/")) for name, url in options.replicas])
    async with _session(options.limits) as session:
        checks = [asyncio.create_task(watch(one, session)) for one in backends.all]
        try:
            await _serve(Balancer(backends, session, options.limits), accepts_from, stop, announce)
        finally:
            for check in checks:
                check.cancel()
    return 0


class Balancer:
    """The application: its own health and metrics, and everything else passed on."""

    def __init__(self, backends: Backends, session: aiohttp.ClientSession, limits: Limits) -> None:
        self._backends = backends
        self._limits = limits
        self._proxy = Proxy(backends, session, limits)
        self.draining = False

    @property
    def in_flight(self) -> int:
        """Requests being answered."""
        return self._proxy.in_flight

    def application(self) -> web.Application:
        """Build the aiohttp application."""
        app = web.Application(client_max_size=self._limits.max_body_bytes)
        app.on_response_prepare.append(self._on_prepare)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_route("*", "/{path:.*}", self._proxy.handle)
        return app

    async def _on_prepare(self, _: web.Request, response: web.StreamResponse) -> None:
        if self.draining:
            response.force_close()

    async def _healthz(self, _: web.Request) -> web.Response:
        healthy = self._backends.any_healthy and not self.draining
        state = {one.name: "up" if one.healthy else "down" for one in self._backends.all}
        body = {"status": "ok" if healthy else "unavailable", "replicas": state}
        return web.json_response(body, status=200 if healthy else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        page = self._proxy.metrics.expose(self._backends)
        return web.Response(text=page, content_type="text/plain", charset="utf-8")


def _session(limits: Limits) -> aiohttp.ClientSession:
    """Open a connection per request: a kept-alive one would go to a server that a deploy has replaced."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=aiohttp.ClientTimeout(
            total=None, sock_connect=limits.connect_s, sock_read=limits.idle_s
        ),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def _serve(
    balancer: Balancer,
    accepts_from: socket.socket,
    stop: asyncio.Event,
    announce: Callable[[int, int], None],
) -> None:
    runner = web.AppRunner(
        balancer.application(),
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=_CANCEL_S,
    )
    await runner.setup()
    site = web.SockSite(runner, accepts_from, backlog=BACKLOG)
    await site.start()
    announce(os.getpid(), accepts_from.getsockname()[1])
    await stop.wait()
    balancer.draining = True
    await site.stop()
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            while balancer.in_flight:  # noqa: ASYNC110 - many requests, no event for the last one
                await asyncio.sleep(_POLL_S)
    log.info("stopped", extra={"fields": {"cut_requests": balancer.in_flight}})
    await runner.cleanup()
