"""The service: two listeners, one clock, one supervisor."""

import asyncio
import json
import logging
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from detector import intake
from detector import state as state_folder
from detector.analysis import Analyse, Analyst
from detector.api import Api
from detector.config import Config
from detector.errors import CannotStartError
from detector.incidents.database import FILE, IncidentDatabase
from detector.pipeline import Pipeline

_log = logging.getLogger(__name__)

_TICK_S = 1.0
_DRAIN_S = 3.0


@dataclass(frozen=True)
class Surroundings:
    """What the service takes from outside, so that tests can give it something else."""

    state: Path
    analyse: Analyse
    announce: Callable[[str], None]
    clock: Callable[[], float] = time.time
    stop: asyncio.Event = field(default_factory=asyncio.Event)


async def serve(config: Config, around: Surroundings) -> None:
    """Run until SIGTERM or SIGINT (or `stop`); raises `CannotStartError`."""
    _install_signals(around.stop)
    state_folder.prepare(around.state)
    async with AsyncExitStack() as stack:
        stack.enter_context(state_folder.lock(around.state))
        database = IncidentDatabase(around.state / FILE, max_incidents=config.store.max_incidents)
        stack.callback(database.close)
        pipeline = Pipeline(config, around.state, around.clock)
        analyst = Analyst(config, pipeline, database, around.analyse)
        otlp = stack.enter_context(_bind(config.host, config.otlp_port))
        api = stack.enter_context(_bind(config.host, config.api_port))
        reloaded = pipeline.reload()
        analyst.recover(around.clock())
        ports = await intake.listen(stack, config, pipeline.accept, otlp)
        api_port = await _listen(stack, Api(pipeline, analyst, database).application(), api)
        record = state_folder.ServiceRecord(
            os.getpid(), config.host, api_port, ports["otlp_port"], around.clock()
        )
        state_folder.write_record(around.state, record)
        stack.callback(state_folder.remove_record, around.state)
        ready = {"event": "ready", **ports, "api_port": api_port}
        around.announce(json.dumps(ready))
        _log.info("service ready reloaded_spans=%d state=%s", reloaded, around.state)
        await _supervise(config, pipeline, analyst, around)


async def _supervise(
    config: Config, pipeline: Pipeline, analyst: Analyst, around: Surroundings
) -> None:
    async def tick() -> None:
        await analyst.follow(pipeline.tick())

    async with asyncio.TaskGroup() as tasks:
        background = [
            tasks.create_task(_every(_TICK_S, tick, analyst.failures), name="tick"),
            tasks.create_task(
                _every(config.store.flush_interval_s, pipeline.store.flush, analyst.failures),
                name="flush",
            ),
            tasks.create_task(analyst.run(), name="analyst"),
        ]
        await around.stop.wait()
        for task in background:
            task.cancel()
    await _drain(pipeline, analyst)


async def _drain(pipeline: Pipeline, analyst: Analyst) -> None:
    try:
        async with asyncio.timeout(_DRAIN_S):
            await analyst.stop()
            await pipeline.store.flush()
    except TimeoutError:
        _log.error("not everything was written before the stop deadline_s=%g", _DRAIN_S)


async def _every(
    interval_s: float, act: Callable[[], Awaitable[None]], failures: Counter[str]
) -> None:
    while True:
        await asyncio.sleep(interval_s)
        try:
            await act()
        except Exception as exc:  # noqa: BLE001  boundary: one bad round must not end the watch
            failures["rounds_failed"] += 1
            _log.error("round failed error=%r", exc, exc_info=exc)


async def _listen(stack: AsyncExitStack, app: web.Application, listener: socket.socket) -> int:
    """Serve an application; returns the port."""
    served = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await served.setup()
    stack.push_async_callback(served.cleanup)
    await web.SockSite(served, listener).start()
    return int(listener.getsockname()[1])


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as exc:
        listener.close()
        raise CannotStartError(
            f"cannot listen on {host}:{port}: {exc.strerror}; "
            "stop what uses it or choose others with --otlp-port and --api-port"
        ) from exc
    return listener


def _install_signals(stop: asyncio.Event) -> None:
    """First signal drains, the second ends at once."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, on_signal)
        except (RuntimeError, ValueError):  # not the main thread: whoever runs us stops us
            _log.debug("signals are handled by the caller")
