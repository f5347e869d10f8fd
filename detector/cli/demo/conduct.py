"""The course of a run: start, learn, inject, wait for the report. It never looks at the truth."""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from detector.cli.demo import gpus, parts
from detector.cli.demo.counter import ThrottledCounter, cpu_mount, throttled_reader
from detector.cli.demo.guard import cancel, guarded
from detector.cli.demo.judge import ClientsView
from detector.cli.demo.observe import IncidentLine, Observed, Observer
from detector.cli.demo.parts import Layout
from detector.cli.demo.plan import without_cgroups
from detector.cli.demo.processes import Fleet
from detector.cli.demo.view import Phase, View
from detector.errors import CannotStartError
from detector.model import Report

START_S = 60.0
BASELINE_S = 100.0
INJECTION_S = 45.0
DETECTION_S = 40.0
ANALYSIS_S = 40.0
"""Deadlines of the phases; a run within its budget needs about half of each."""


@dataclass(frozen=True)
class Finding:
    """What a run led to; without an incident there is no report."""

    incident: IncidentLine | None
    report: Report | None
    cgroup: str | None
    injecting_since_unix_s: float | None
    clients: ClientsView | None = None


@dataclass
class Conductor:
    """One run's flow over its parts."""

    layout: Layout
    fleet: Fleet
    observer: Observer
    view: View
    counter: ThrottledCounter | None = None
    cgroup: str | None = None
    _injecting_since_unix_s: float | None = None
    _usual_p99_s: float | None = None
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _fault_active: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> Finding:
        """Go through all phases up to the report."""
        await self._start()
        self._tasks.append(asyncio.create_task(self.observer.run(), name="observe"))
        return await guarded(self._observe(), self._tasks)

    async def close(self) -> None:
        """End the tasks that go on beside the phases."""
        for task in self._tasks:
            await cancel(task)

    async def _observe(self) -> Finding:
        await self._learn()
        injecting = asyncio.create_task(self._inject(), name="inject")
        self._tasks.append(injecting)
        incident = await guarded(self._watch(injecting), [injecting])
        clients = ClientsView(self._usual_p99_s, self.observer.seen.load.p99_s)
        report = await self._analyse(incident) if incident else None
        return Finding(incident, report, self.cgroup, self._injecting_since_unix_s, clients)

    async def _start(self) -> None:
        """Start all parts side by side, and the load when they are up."""
        service = self.layout.plan.service
        self.view.phase(Phase.START, f"starting the detector, the agent and the workload {service}")
        await self._provide()
        started = [
            await self.fleet.start(spec(self.layout))
            for spec in (parts.detector, parts.agent, parts.workload)
        ]
        self._record()
        *_, workload = await asyncio.gather(*(part.event("ready", START_S) for part in started))
        self._enter(workload.get("cgroup"))
        self.layout = replace(self.layout, workload_host=workload["host"])
        await self.fleet.start(parts.load(self.layout, self.observer.seen.take_load))
        self._record()

    async def _provide(self) -> None:
        """Start the stores that the workload shall use, and stage the GPUs that the agent shall see."""
        schemes = self.layout.plan.fault.stores
        stores = [await self.fleet.start(parts.store(scheme)) for scheme in schemes]
        serving = await asyncio.gather(*(store.event("ready", START_S) for store in stores))
        urls = [str(event["url"]) for event in serving]
        self.layout = replace(self.layout, stores=dict(zip(schemes, urls, strict=True)))
        if self.layout.gpu_library:
            await asyncio.to_thread(gpus.stage, self.layout.gpus)

    def _enter(self, cgroup: str | None) -> None:
        """Begin to count by ourselves in the workload's cgroup, where it has one."""
        self.cgroup = cgroup
        mount = cpu_mount()
        if cgroup and mount:
            self.counter = ThrottledCounter(throttled_reader(mount, cgroup))
            self._tasks.append(asyncio.create_task(self.counter.run(), name="count throttling"))
        elif self.layout.plan.fault.needs_cgroup:
            raise CannotStartError(
                "the workload got no cgroup, so the fault cannot be injected: "
                "run as root, or `tailcause demo --fault bad-deploy`"
            )

    def _record(self) -> None:
        """Write run.json, so that others find the ports and processes of this run."""
        plan = self.layout.plan
        self.layout.run.write_json("run.json", {
            "pid": os.getpid(), "pids": self.fleet.pids, "ports": self.layout.ports,
            "service": plan.service, "model": plan.model, "cgroup": plan.cgroup,
            "fault": plan.fault.name, "seed": plan.seed, "written_unix_s": time.time(),
        })  # fmt: skip

    async def _learn(self) -> None:
        rate = self.layout.plan.rate
        self.view.phase(Phase.BASELINE, f"{rate:g} requests/s; learning what is normal")
        await self.observer.until(lambda seen: seen.status.baseline_ready, BASELINE_S, _no_baseline)

    async def _inject(self) -> None:
        """Take the plan's steps one by one, each a while after the one before took effect."""
        plan = self.layout.plan if self.cgroup else without_cgroups(self.layout.plan)
        for step in plan.steps:
            await asyncio.sleep(step.wait_s)
            if not step.decoy:
                self._injecting_since_unix_s = time.time()
                self._usual_p99_s = self.observer.seen.load.p99_s
            injector = await self.fleet.start(parts.injector(self.layout, step))
            after_fault = self._fault_active.is_set()
            await injector.event("active", self.layout.lifetime_s if after_fault else INJECTION_S)
            if not step.decoy:
                self._fault_active.set()
        if plan.fault.silent:
            await asyncio.sleep(plan.hold_s)

    async def _watch(self, injecting: asyncio.Task[None]) -> IncidentLine | None:
        """Wait for an incident, a false one too; None when the time is up."""
        self.view.phase(Phase.WATCHING, "normal is known; watching the residual")
        raised = asyncio.create_task(
            self.observer.until(_any_incident, self.layout.lifetime_s, _no_baseline)
        )
        over = asyncio.create_task(self._over(injecting))
        try:
            await asyncio.wait({raised, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel(raised)
            await cancel(over)
        return first_incident(self.observer.seen)

    async def _over(self, injecting: asyncio.Task[None]) -> None:
        """Return when there is nothing left to wait for."""
        if self.layout.plan.fault.silent:
            await asyncio.wait({injecting})
            return
        await self._fault_active.wait()
        await asyncio.sleep(DETECTION_S)

    async def _analyse(self, incident: IncidentLine) -> Report:
        self.view.phase(Phase.DETECTED, f"incident {incident.id}")
        self.view.phase(Phase.ANALYSING, "collecting what happens since, then ranking the causes")
        await self.observer.until(_reported(incident.id), ANALYSIS_S, _no_report(incident.id))
        report = await self.observer.report(incident.id)
        self.view.phase(Phase.REPORT, report.headline)
        return report


def first_incident(seen: Observed) -> IncidentLine | None:
    """Return the earliest incident, which is the one that counts."""
    return min(seen.incidents, key=lambda line: line.onset_unix_s, default=None)


def _any_incident(seen: Observed) -> bool:
    return bool(seen.incidents)


def _reported(incident: str) -> Callable[[Observed], bool]:
    return lambda seen: any(
        line.id == incident and line.status != "analysing" for line in seen.incidents
    )


def _no_report(incident: str) -> Callable[[Observed], str]:
    def missed(seen: Observed) -> str:
        error = next((line.error for line in seen.incidents if line.id == incident), None)
        why = f": {error}" if error else ""
        return f"no report on incident {incident} within {ANALYSIS_S:.0f} s{why}"

    return missed


def _no_baseline(seen: Observed) -> str:
    status, load = seen.status, seen.load
    lost = ", ".join(f"{count} {reason}" for reason, count in status.dropped.items() if count)
    return (
        f"no baseline within {BASELINE_S:.0f} s ({status.baseline_progress:.0%}): the detector has "
        f"{status.spans} spans in {status.windows} windows and dropped {lost or 'nothing'}; "
        f"the load got {load.ok} answers, {load.rejected} rejections and {load.failed} failures"
    )
