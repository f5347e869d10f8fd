"""The command lines of a demo's parts; they are known by their commands alone, never imported."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from detector.cli.demo import gpus
from detector.cli.demo.plan import Plan, Step
from detector.cli.demo.ports import Ports
from detector.cli.demo.processes import Event, PartSpec, Wave
from detector.cli.demo.rundir import RunDir

LOOPBACK = "http://127.0.0.1"
STORE = "store-"
"""Begins the names of the parts that are stores."""


@dataclass(frozen=True)
class Layout:
    """What the command lines are made of; `lifetime_s` bounds load and faults if all else fails.

    `workload_host` is known once the workload has made its network, `stores` (address by scheme) once they serve.
    """

    plan: Plan
    ports: Ports
    run: RunDir
    lifetime_s: float
    workload_host: str = "127.0.0.1"
    stores: Mapping[str, str] = field(default_factory=dict)
    gpu_library: Path | None = None
    """The fake NVML, where the fault is one of a GPU."""

    @property
    def workload_url(self) -> str:
        """Where requests go."""
        return f"http://{self.workload_host}:{self.ports.workload}"

    @property
    def api_url(self) -> str:
        """Where the detector answers."""
        return f"{LOOPBACK}:{self.ports.detector_api}"

    def truth_file(self, step: Step) -> Path:
        """Where the injector of a step writes what it did."""
        return self.run.truth / f"{step.injection}.json"

    @property
    def gpus(self) -> Path:
        """The scenario of the fake NVML, beside the workload's state."""
        return self.run.workload / "gpus"


def store(scheme: str) -> PartSpec:
    """Describe a store, which tells its address when it serves."""
    return PartSpec(f"{STORE}{scheme}", ("detector.cli.demo.store_process", scheme))


def detector(layout: Layout) -> PartSpec:
    """Describe the detector, with a store of its own for this run."""
    return PartSpec("detector", (
        "detector.cli.main", "serve", "--state", str(layout.run.detector),
        "--otlp-port", str(layout.ports.detector_otlp), "--otlp-grpc-port", "0", "--api-port", str(layout.ports.detector_api),
    ))  # fmt: skip


def agent(layout: Layout) -> PartSpec:
    """Describe the agent: spans and metrics go on to the detector, metrics at the pace of a short run."""
    detector_url = f"{LOOPBACK}:{layout.ports.detector_otlp}"
    library = layout.gpu_library
    seeing = gpus.environment(library, layout.gpus) if library else {}
    return PartSpec("agent", (
        "agent.cli", "run", "--otlp-port", str(layout.ports.agent_otlp), "--otlp-grpc-port", "0",
        "--metrics-port", str(layout.ports.agent_metrics), "--forward", detector_url,
        "--export", detector_url, "--interval", "1s", "--export-interval", "1s",
    ), environment=seeing)  # fmt: skip


def workload(layout: Layout) -> PartSpec:
    """Describe the supervised reference workload."""
    plan = layout.plan
    return PartSpec("workload", (
        "kernels.cli", "up", "--state", str(layout.run.workload), "--service", plan.service,
        "--port", str(layout.ports.workload), "--model", plan.model, "--version", plan.version,
        "--revision", plan.revision, "--cgroup", plan.cgroup,
        "--otlp", f"{LOOPBACK}:{layout.ports.agent_otlp}", "--set", f"seed={plan.workload_seed}",
        *(("--cpus", plan.cpus) if plan.cpus else ()), *plan.fault.words(layout.stores),
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
        "--url", layout.workload_url, *(("--gpus", str(layout.gpus)) if layout.gpu_library else ()),
    ), wave=Wave.ACTORS, may_finish=True)  # fmt: skip
