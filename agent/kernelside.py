"""Puts the agent's kernel side together: probes, ledger, governor and the control socket."""

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from agent.budget import Budget
from agent.config import Config
from agent.control import Control
from agent.enrich import Enricher
from agent.governor import Governor, Meters
from agent.host.files import read_text
from agent.host.hierarchies import Hierarchies
from agent.host.paths import HostPaths
from agent.host.serving import ServingProcesses
from agent.ledger import Ledger
from agent.ledger_process import annotate
from agent.probecost import CostBook, Trap
from agent.probes import Probes
from agent.selfmetrics import resident_bytes
from agent.state import control_dir
from agent.telemetry.model import Sample
from ebpf.ring import Ring
from ebpf.session import State

_log = logging.getLogger(__name__)

POLL_S = 0.1
WATCH_S = 2.0
_IDLE_FIELDS = (3, 4)  # idle and iowait of /proc/stat


MIN_PROCESS_SPAN_NS = 10_000_000
"""Waits of a process have a resolution of 100 ms: of a span of less than a tenth, they would say nothing."""
MAX_PROCESS_SPANS = 500
"""Of one request, the first ones."""


class ByProcess:
    """Ledgers of spans that no hook has seen, from the ring of their process's waits."""

    def __init__(self, probes: Probes, enricher: Enricher, serving: ServingProcesses) -> None:
        self._probes = probes
        self._enricher = enricher
        self._serving = serving
        self._ring = Ring(probes)
        self._sampled_s = 0.0

    @property
    def ready(self) -> bool:
        """Tell whether threads are being sampled."""
        return len(self._ring) > 0

    def sample(self) -> None:
        """Take a sample of all serving threads, unless there is one of just now or the probes are busy."""
        now_s = time.monotonic()
        if now_s - self._sampled_s >= POLL_S / 2 and self._probes.samples_threads:
            self._sampled_s = now_s
            self._ring.sample()

    def annotate(
        self, resource: resource_pb2.Resource, spans: Sequence[trace_pb2.Span]
    ) -> Sequence[trace_pb2.Span]:
        """Add ledgers to spans that are long enough; return the others."""
        pid = self._enricher.local_pid(resource)
        if pid is None:
            return spans
        done: set[bytes] = set()
        for span in spans:
            long = span.end_time_unix_nano - span.start_time_unix_nano >= MIN_PROCESS_SPAN_NS
            if long and annotate(span, pid, self._ring, self._serving):
                done.add(span.span_id)
            if len(done) >= MAX_PROCESS_SPANS:
                break
        return [span for span in spans if span.span_id not in done] if done else spans

    def watched(self) -> list[int]:
        """Return the processes that send spans and those that may do their work."""
        senders = self._enricher.recent_pids()
        served = (pid for sender in senders for pid in self._serving(sender))
        return list(dict.fromkeys([*senders, *served]))


@dataclass(frozen=True)
class KernelSide:
    """What the agent has in the kernel, and what it does about it."""

    probes: Probes
    ledger: Ledger
    governor: Governor
    control: Control
    by_process: ByProcess

    def start(self, group: asyncio.TaskGroup) -> "list[asyncio.Task[None]]":
        """Start the endless tasks."""
        endless = (self._poll_for_ever, self._watch_for_ever, self.governor.run)
        return [group.create_task(one()) for one in endless]

    async def annotate(self, message: trace_service_pb2.ExportTraceServiceRequest) -> None:
        """Add the ledgers of the spans of a request, those that have just finished too."""
        await self.probes.settle()
        self.by_process.sample()
        self.ledger.annotate(message)

    async def change(self, config: Config) -> None:
        """Follow the settings of the probes and of their budget."""
        self.governor.budget = budget_of(config)
        await asyncio.to_thread(self.probes.change, config.probes)

    def own_samples(self) -> list[Sample]:
        """Return what the probes, the ledger and the governor say of themselves."""
        return [
            *self.probes.own_samples(),
            *self.ledger.own_samples(),
            *self.governor.own_samples(),
        ]

    async def _poll_for_ever(self) -> None:
        told = False
        while True:
            await asyncio.sleep(POLL_S)
            if not told and (told := self.probes.started):
                self._tell_states()
            await self.probes.settle()
            self.by_process.sample()
            self.ledger.take_in()

    def _tell_states(self) -> None:
        status = self.probes.status()
        on = [name for name, one in status.items() if one.state is State.ON]
        missing = [f"{name}:{one.state}" for name, one in status.items() if name not in on]
        _log.info("event=probes on=%s others=%s", ",".join(on), ",".join(missing))

    async def _watch_for_ever(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            await asyncio.to_thread(self._watch)

    def _watch(self) -> None:
        self.probes.watch(self.by_process.watched())


def budget_of(config: Config) -> Budget:
    """Return what the settings allow."""
    return Budget(
        own_cores=config.ebpf_own_budget,
        imposed_share=config.ebpf_imposed_budget,
        memory_bytes=config.ebpf_memory_budget * 1e6,
        look_s=max(Budget.look_s, config.interval),
    )


def build(config: Config, enricher: Enricher, hierarchies: Hierarchies) -> KernelSide:
    """Put it together; nothing is attached yet."""
    probes = Probes(config.probes, paths=config.paths)
    serving = ServingProcesses(config.paths, hierarchies, config.ebpf_serving)
    by_process = ByProcess(probes, enricher, serving)
    ledger = Ledger(fallback=by_process)
    probes.deliver = ledger.deliver
    meters = Meters(
        own_cpu_s=time.process_time,
        busy_cpu_s=lambda: busy_cpu_s(config.paths),
        spans=lambda: enricher.seen,
        cpus=os.cpu_count() or 1,
        resident_bytes=resident_bytes,
    )
    governor = Governor(probes, meters, CostBook(Trap()), budget_of(config))

    def off() -> list[str]:
        detached = list(probes.off("switched off by `tailcause-agent off`"))
        _log.warning("event=probes_off detached=%s", ",".join(detached))
        return detached

    return KernelSide(probes, ledger, governor, Control(control_dir(), off), by_process)


def busy_cpu_s(paths: HostPaths) -> float:
    """Return the CPU time used on this host so far, in seconds; 0 where that cannot be read."""
    try:
        fields = read_text(paths.procfs / "stat").split("\n", 1)[0].split()[1:9]
    except OSError:
        return 0.0
    busy = sum(int(ticks) for place, ticks in enumerate(fields) if place not in _IDLE_FIELDS)
    return busy / os.sysconf("SC_CLK_TCK")
