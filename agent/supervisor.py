"""The running agent: one task group, started in order and drained in order."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from importlib import metadata

from agent import kernelside, spanside
from agent.collectors.base import CollectorContext
from agent.config import Config
from agent.enrich import Enricher
from agent.errors import CannotStartError
from agent.exporters.base import Exporter, ExporterContext
from agent.exporters.registry import EXPORTERS
from agent.forwarding import SPANS_PIPE
from agent.gpu.settings import GpuUsers
from agent.host.hierarchies import Hierarchies, discover
from agent.kernel_log import KernelLogForwarder, KernelLogSettings
from agent.kube.directory import Pods
from agent.kube.label import label
from agent.kube.own import OwnSamples
from agent.pipeline import Board, Watched, close, collect_every, disabled_samples, watches
from agent.selfmetrics import SelfMetrics
from agent.telemetry.keys import HOST_NAME, SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION
from agent.telemetry.model import Attributes

_log = logging.getLogger(__name__)


class Supervisor:
    """Runs an agent until `stop`."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stopping = asyncio.Event()
        pods, gpu_users = Pods(), GpuUsers()
        self._board = Board(lambda samples: label(samples, pods), config.max_series)
        self._senders = config.forwarding.senders()
        self._ports: dict[str, int] = {}
        hierarchies = _hierarchies(config)
        enricher = Enricher(config.paths, hierarchies, config.node)
        enricher.pods = pods
        self._kernel = kernelside.build(config, enricher, hierarchies)
        sender = self._senders.get(SPANS_PIPE)
        around = spanside.Around(enricher, sender, self._kernel.annotate)
        self._spans = spanside.build(config, around)
        context = CollectorContext(
            config.paths,
            config.walk_limits,
            probes=self._kernel.probes,
            selection=config.selection,
            serving_pids=enricher.recent_pids,
            kube=config.kube,
            pods=pods,
            gpu=config.gpu,
            gpu_users=gpu_users,
            gpu_pids=gpu_users,
        )
        self._watched = watches(context, config.deadline, config.disable)
        self._exporters = self._build_exporters()
        self._board.add_source(lambda: disabled_samples(config.disable, time.time_ns()))
        for watched in self._watched:
            self._board.add_source(watched.watch.own_samples)
        self._board.add_source(enricher.own_samples)
        self._board.add_source(OwnSamples(pods))
        self._board.add_source(self._kernel.own_samples)
        self._board.add_source(self._spans.own_samples)
        self._kernel_log = KernelLogForwarder(
            KernelLogSettings(config.kernel_log), sender, resource(config)
        )
        self._board.add_source(self._kernel_log.own_samples)
        self._board.add_source(SelfMetrics(self._senders, time.time_ns()))

    def _build_exporters(self) -> list[Exporter]:
        context = ExporterContext(
            self._config, self._board, resource(self._config), self._senders, self._ports
        )
        return [build(context) for _, build in EXPORTERS]

    @property
    def is_stopping(self) -> bool:
        """Tell whether `stop` was called."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Begin to drain; `run` returns soon after."""
        self._stopping.set()

    async def run(self, ready: Callable[[dict[str, int]], None]) -> None:
        """Run; `ready` is told the ports once everything listens. Raises `CannotStartError`."""
        refusals: list[CannotStartError] = []
        try:
            await self._run(ready)
        except* CannotStartError as errors:
            refusals = [error for error in errors.exceptions if isinstance(error, CannotStartError)]
        if refusals:
            raise refusals[0]

    async def _run(self, ready: Callable[[dict[str, int]], None]) -> None:
        async with asyncio.TaskGroup() as group, contextlib.AsyncExitStack() as running:
            running.push_async_callback(asyncio.to_thread, self._kernel.probes.off, "stopped")
            await asyncio.to_thread(self._config.forwarding.sweep)
            sending = [group.create_task(sender.run()) for sender in self._senders.values()]
            running.push_async_callback(self._close_senders, sending)
            for exporter in self._exporters:
                await exporter.start(group)
                running.push_async_callback(exporter.stop)
            await self._spans.start(group, self._ports)
            running.push_async_callback(self._spans.stop)
            running.push_async_callback(close, self._watched)
            collecting = [self._start(group, watched) for watched in self._watched]
            running.callback(_cancel, collecting)
            await self._kernel.control.start()
            running.push_async_callback(self._kernel.control.stop)
            running.callback(_cancel, self._kernel.start(group))
            running.callback(_cancel, [group.create_task(self._kernel_log.run())])
            ready(self._ports)
            await self._stopping.wait()
            _log.info("event=draining")

    def _start(self, group: asyncio.TaskGroup, watched: Watched) -> "asyncio.Task[None]":
        return group.create_task(collect_every(watched, self._board, self._config.interval))

    async def _close_senders(self, sending: "list[asyncio.Task[None]]") -> None:
        for sender in self._senders.values():
            await sender.close()
        await asyncio.gather(*sending)


def _cancel(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()


def _hierarchies(config: Config) -> Hierarchies:
    try:
        return discover(config.paths)
    except OSError as exc:
        _log.warning("event=cgroups_unknown why=%r lost='spans carry no cgroup'", str(exc))
        return Hierarchies(())


def resource(config: Config) -> Attributes:
    """Return the resource attributes of the agent's own metrics."""
    return {
        SERVICE_NAME: "tailcause-agent",
        SERVICE_VERSION: version(),
        SERVICE_INSTANCE_ID: config.node,
        HOST_NAME: config.node,
    }


def version() -> str:
    """Return the installed version of the product."""
    try:
        return metadata.version("tailcause")
    except metadata.PackageNotFoundError:
        return "unknown"


def announce(ports: dict[str, int]) -> None:
    """Print the ready line on stdout."""
    sys.stdout.write(json.dumps({"event": "ready", **ports}) + "\n")
    sys.stdout.flush()


async def run_until_signalled(config: Config) -> None:
    """Run an agent until SIGTERM or SIGINT; the second one ends the process at once."""
    supervisor = Supervisor(config)
    loop = asyncio.get_running_loop()

    def handle() -> None:
        if supervisor.is_stopping:
            sys.stderr.flush()
            os._exit(1)
        supervisor.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle)
    await supervisor.run(announce)
