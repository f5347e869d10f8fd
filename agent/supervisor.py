"""The running agent: one task group, started in order and drained in order."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine

from agent import kernelside, spanside
from agent.build import version
from agent.collecting import Collecting
from agent.collectors.base import CollectorContext
from agent.config import Config
from agent.enrich import Enricher
from agent.errors import CannotStartError
from agent.exporters.base import Exporter, ExporterContext
from agent.exporters.registry import EXPORTERS
from agent.forwarding import METRICS_PIPE, SPANS_PIPE
from agent.gpu.settings import GpuUsers
from agent.health import Health
from agent.host.hierarchies import Hierarchies, discover
from agent.kernel_log import KernelLogForwarder, KernelLogSettings
from agent.kube.directory import Pods
from agent.kube.label import label
from agent.kube.own import OwnSamples
from agent.outlets import Outlets
from agent.pace import Pace
from agent.pauses import Pauses
from agent.pipeline import Board, Source
from agent.selfmetrics import SelfMetrics
from agent.telemetry.keys import HOST_NAME, SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION
from agent.telemetry.model import Attributes

_log = logging.getLogger(__name__)

_LAST_LOOK_S = 0.5

Endless = Callable[[], Coroutine[None, None, None]]


class Supervisor:
    """Runs an agent until `stop`."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stopping = asyncio.Event()
        pods, gpu_users = Pods(), GpuUsers()
        self._board = Board(lambda samples: label(samples, pods), config.max_series)
        self._outlets = Outlets(config.forwarding)
        self._pauses = Pauses()
        self._export_pace = Pace(config.export_interval)
        self._ports: dict[str, int] = {}
        hierarchies = _hierarchies(config)
        enricher = Enricher(config.paths, hierarchies, config.node)
        enricher.pods = pods
        self._kernel = kernelside.build(config, enricher, hierarchies)
        sender = self._outlets.senders.get(SPANS_PIPE)
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
            servers=config.scraping,
        )
        self._collecting = Collecting(context, self._board, config)
        self.health = Health(self._collecting, lambda: self._pauses.lag_s)
        self._exporters = self._build_exporters()
        self._board.add_source(self._collecting.own_samples)
        self._board.add_source(enricher.own_samples)
        self._board.add_source(OwnSamples(pods))
        self._board.add_source(self._kernel.own_samples)
        self._board.add_source(self._spans.own_samples)
        self._kernel_log = KernelLogForwarder(
            KernelLogSettings(config.kernel_log), sender, resource(config)
        )
        self._board.add_source(self._kernel_log.own_samples)
        self._board.add_source(SelfMetrics(self._outlets.senders, time.time_ns()))
        self._board.add_source(self._pauses.own_samples)

    def _build_exporters(self) -> list[Exporter]:
        context = ExporterContext(
            self._config,
            self._board,
            resource(self._config),
            self._outlets.senders,
            self._ports,
            self._export_pace,
            self.health,
            self._collecting.refresh,
        )
        return [build(context) for _, build in EXPORTERS]

    @property
    def is_stopping(self) -> bool:
        """Tell whether `stop` was called."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Begin to drain; `run` returns soon after."""
        self._stopping.set()

    def add_source(self, source: Source) -> None:
        """Have the samples of a source exported too."""
        self._board.add_source(source)

    async def run(self, ready: Callable[[dict[str, int]], None], *besides: Endless) -> None:
        """Run; `ready` is told the ports once everything listens. Raises `CannotStartError`.

        `besides` run from then on until the agent drains.
        """
        refusals: list[CannotStartError] = []
        try:
            await self._run(ready, *besides)
        except* CannotStartError as errors:
            refusals = [error for error in errors.exceptions if isinstance(error, CannotStartError)]
        if refusals:
            raise refusals[0]

    async def _run(self, ready: Callable[[dict[str, int]], None], *besides: Endless) -> None:
        async with asyncio.TaskGroup() as group, contextlib.AsyncExitStack() as running:
            running.push_async_callback(asyncio.to_thread, self._kernel.probes.off, "stopped")
            await asyncio.to_thread(self._config.forwarding.sweep)
            self._outlets.start(group)
            running.push_async_callback(self._outlets.close)
            running.callback(_cancel, [self._pauses.start(group)])
            running.callback(self._pauses.stop)
            for exporter in self._exporters:
                await exporter.start(group)
                running.push_async_callback(exporter.stop)
            await self._spans.start(group, self._ports)
            running.push_async_callback(self._spans.stop)
            self._collecting.start(group)
            running.push_async_callback(self._collecting.stop)
            await self._kernel.control.start()
            running.push_async_callback(self._kernel.control.stop)
            running.callback(_cancel, self._kernel.start(group))
            running.callback(_cancel, [group.create_task(self._kernel_log.run())])
            running.callback(_cancel, [group.create_task(one()) for one in besides])
            self.health.listening = True
            ready(self._ports)
            await self._stopping.wait()
            self.health.draining = True
            _log.info("event=draining")
            if METRICS_PIPE in self._outlets.senders:
                await self._collecting.refresh(_LAST_LOOK_S)

    async def change(self, config: Config) -> None:
        """Follow the settings that can be followed while running; raises `CannotStartError`, and then nothing has changed."""
        ways = await asyncio.to_thread(self._outlets.prepare, config.forwarding)
        self._config = config
        logging.getLogger().setLevel(config.log_level.upper())
        self._outlets.change(ways)
        sender = self._outlets.senders.get(SPANS_PIPE)
        self._spans.change(config, sender)
        self._kernel_log.sender = sender
        await self._outlets.settle()
        self._export_pace.change(config.export_interval)
        await self._kernel.change(config)
        await self._collecting.change(config)


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
