"""The life of a server process: build, warm up, serve, drain."""

import asyncio
import gc
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from aiohttp import web

from kernels.workload.disturbances import Pace
from kernels.workload.hook import Hook
from kernels.workload.parts import Files, Owner, assemble, prepare, warm_up
from kernels.workload.process import BACKLOG, listener, stop_signal
from kernels.workload.server import Front
from kernels.workload.settings import Settings
from kernels.workload.tracing import Identity, Tracing

log = logging.getLogger(__name__)

LINGER_S = 0.1  # for requests on connections that were accepted just before the end
POLL_S = 0.02
CANCEL_S = 0.3
FLUSH_S = 1.5


@dataclass(frozen=True)
class Options:
    """Who the server is and where it listens."""

    identity: Identity
    host: str
    port: int
    listen_fd: int | None
    otlp_url: str
    cache_dir: Path
    hook: Path | None = None


class Ready(msgspec.Struct, frozen=True):
    """The line on stdout that says: warm and accepting."""

    event: str
    pid: int
    port: int


async def serve(options: Options, settings: Settings, announce: Callable[[Ready], None]) -> int:
    """Serve until SIGTERM or SIGINT, then drain; 1 when the engine failed, else 0."""
    stop = stop_signal()
    accepts_from = listener(options.host, options.port, options.listen_fd)
    files = await asyncio.to_thread(prepare, settings, options.cache_dir)
    return await _Process(options, settings, files).run(accepts_from, stop, announce)


class _Process:
    """One server from its assembled parts to its end."""

    def __init__(self, options: Options, settings: Settings, files: Files) -> None:
        self._otlp_url = options.otlp_url
        self._settings = settings
        self._tracing = Tracing(options.identity)
        self._failed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        pace = Pace() if options.hook else None
        owner = Owner(self._tracing, self._on_failure, pace)
        self._service = assemble(settings, files, options.identity, owner)
        self._hook: Hook | None = None
        if options.hook and pace:
            self._hook = Hook(options.hook, pace, self._service.engine.lock)
        self._front = Front(self._service, lambda: self._tracing.lost_spans)

    async def run(
        self, listener: socket.socket, stop: asyncio.Event, announce: Callable[[Ready], None]
    ) -> int:
        """Warm up, accept until told to stop, drain."""
        self._service.engine.start()
        if self._settings.warm_up:
            await warm_up(self._service, self._settings)
        # What start-up left will live as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        runner = web.AppRunner(
            self._front.application(self._settings.max_body_bytes),
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=CANCEL_S,
        )
        await runner.setup()
        site = web.SockSite(runner, listener, backlog=BACKLOG)
        if self._otlp_url:
            self._tracing.start_export(self._otlp_url)
        if self._hook:
            await self._hook.open()
        await site.start()
        announce(Ready("ready", os.getpid(), listener.getsockname()[1]))
        await _first_of(stop, self._failed)
        await self._drain(runner, site)
        return 1 if self._failed.is_set() else 0

    def _on_failure(self) -> None:
        self._loop.call_soon_threadsafe(self._failed.set)

    async def _drain(self, runner: web.AppRunner, site: web.SockSite) -> None:
        """Stop accepting, let what runs finish within the limit, flush spans."""
        loop = asyncio.get_running_loop()
        self._front.draining = True
        await site.stop()
        log.info("draining", extra={"fields": {"in_flight": self._front.in_flight}})
        deadline_s = loop.time() + self._settings.drain_s
        await asyncio.sleep(LINGER_S)
        quiet = 0
        while quiet < 2 and loop.time() < deadline_s:
            quiet = 0 if self._front.in_flight else quiet + 1
            await asyncio.sleep(POLL_S)
        cut = self._front.in_flight
        await runner.cleanup()
        if self._hook:
            await self._hook.close()
        if self._service.adapters:
            self._service.adapters.close()
        await self._service.lookups.close()
        await asyncio.to_thread(self._service.engine.stop, CANCEL_S)
        flushed = await asyncio.to_thread(self._tracing.stop, FLUSH_S)
        log.info("stopped", extra={"fields": {"cut_requests": cut, "spans_flushed": flushed}})


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
