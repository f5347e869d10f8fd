"""The command lines of a demo's parts; they are known by their commands alone, never imported."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from detector.cli.demo.plan import Fault, Plan, Step
from detector.cli.demo.ports import Ports
from detector.cli.demo.processes import Event, PartSpec, Wave
from detector.cli.demo.rundir import RunDir

LOOPBACK = "http://127.0.0.1"


@dataclass(frozen=True)
class Layout:
    """What the command lines are made of; `lifetime_s` bounds load and faults if all else fails."""

    plan: Plan
    ports: Ports
    run: RunDir
    lifetime_s: float

    @property
    def workload_url(self) -> str:
        """Where requests go."""
        return f"{LOOPBACK}:{self.ports.workload}"

    @property
    def api_url(self) -> str:
        """Where the detector answers."""
        return f"{LOOPBACK}:{self.ports.detector_api}"

    def truth_file(self, step: Step) -> Path:
        """Where the injector of a step writes what it did."""
        return self.run.truth / f"{step.injection}.json"


def detector(layout: Layout) -> PartSpec:
    """Describe the detector, with a store of its own for this run."""
    return PartSpec("detector", (
        "detector.cli.main", "serve", "--state", str(layout.run.detector),
        "--otlp-port", str(layout.ports.detector_otlp), "--otlp-grpc-port", "0", "--api-port", str(layout.ports.detector_api),
    ))  # fmt: skip


def agent(layout: Layout) -> PartSpec:
    """Describe the agent: spans and metrics go on to the detector, metrics at the pace of a short run."""
    detector_url = f"{LOOPBACK}:{layout.ports.detector_otlp}"
    return PartSpec("agent", (
        "agent.cli", "run", "--otlp-port", str(layout.ports.agent_otlp), "--otlp-grpc-port", "0",
        "--metrics-port", str(layout.ports.agent_metrics), "--forward", detector_url,
        "--export", detector_url, "--interval", "1s", "--export-interval", "1s",
    ))  # fmt: skip


def workload(layout: Layout) -> PartSpec:
    """Describe the supervised reference workload."""
    plan = layout.plan
    return PartSpec("workload", (
        "kernels.cli", "up", "--state", str(layout.run.workload), "--service", plan.service,
        "--port", str(layout.ports.workload), "--model", plan.model, "--version", plan.version,
        "--revision", plan.revision, "--cgroup", plan.cgroup,
        "--otlp", f"{LOOPBACK}:{layout.ports.agent_otlp}", "--set", f"seed={plan.workload_seed}",
        *(("--cpus", str(min(os.sched_getaffinity(0)))) if plan.fault is Fault.NOISY_NEIGHBOUR else ()),
    ))  # fmt: skip


def load(layout: Layout, on_event: Callable[[Event], None]) -> PartSpec:
    """Describe the load generator, which tells once a second how its requests fare."""
    plan = layout.plan
    return PartSpec("load", (
        "kernels.cli", "load", "--url", layout.workload_url, "--rate", f"{plan.rate:g}",
        "--duration", f"{layout.lifetime_s:.0f}s", "--seed", str(plan.load_seed), "--json",
    ), wave=Wave.ACTORS, on_event=on_event)  # fmt: skip


def injector(layout: Layout, step: Step) -> PartSpec:
    """Describe the injector of one step; it alone is told where the truth goes."""
    return PartSpec(step.injection, (
        "kernels.cli", "fault", step.injection, "--state", str(layout.run.workload),
        "--intensity", f"{step.intensity:.3f}", "--for", f"{layout.lifetime_s:.0f}s",
        "--seed", str(step.seed), "--truth", str(layout.truth_file(step)),
        "--url", layout.workload_url,
    ), wave=Wave.ACTORS, may_finish=True)  # fmt: skip
