"""What a fault is, and what it may use."""

import random
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from kernels.errors import WorkloadError
from kernels.supervisor.cgroups import Cgroup
from kernels.supervisor.mounts import discover
from kernels.supervisor.reaper import Reaper
from kernels.supervisor.state import ReplicaState, WorkloadState


class FaultKind(StrEnum):
    """What a diagnosis should make of it: a cause, more work, or nothing."""

    FAULT = "fault"
    DEMAND = "demand"
    DECOY = "decoy"


class FaultError(WorkloadError):
    """The fault cannot be injected here."""


@dataclass(frozen=True)
class FaultOptions:
    """What the user chose; `intensity` is the factor by which the P99 should rise.

    `replica` is the one server to hit, all of them without it; `gpus` the scenario file of the fake NVML.
    """

    intensity: float
    seed: int
    variant: str | None = None
    url: str | None = None
    replica: str | None = None
    gpus: Path | None = None


@dataclass(frozen=True)
class FaultContext:
    """What an injection works with.

    `pause` sleeps and raises when the run is told to end, so nothing goes on after that. Every
    change needs its undo action in `reaper` first.
    """

    state_dir: Path
    workload: WorkloadState
    options: FaultOptions
    reaper: Reaper
    pause: Callable[[float], None]

    def rng(self, purpose: str) -> random.Random:
        """Give the same random numbers for the same seed and purpose."""
        return random.Random(f"{purpose}:{self.options.seed}")  # noqa: S311 - not for secrets

    @property
    def url(self) -> str:
        """Where the workload serves."""
        return self.options.url or f"http://{self.workload.host}:{self.workload.port}"

    @property
    def target(self) -> str:
        """What the ground truth calls the victim: the replica that was chosen, else the service."""
        return self.options.replica or self.workload.service

    def servers(self) -> tuple[ReplicaState, ...]:
        """List the servers to hit: the one that was chosen, or all."""
        known = self.workload.replicas
        chosen = tuple(one for one in known if self.options.replica in (None, one.instance))
        if not chosen:
            names = ", ".join(one.instance for one in known)
            raise FaultError(f"no replica {self.options.replica!r}: choose one of {names}")
        return chosen

    def server_urls(self) -> tuple[str, ...]:
        """Where each server to hit can be asked itself; behind a balancer that is on the loopback."""
        if len(self.workload.replicas) < 2:
            return (self.url,)
        return tuple(f"http://127.0.0.1:{one.port}" for one in self.servers())

    def workload_cgroup(self) -> Cgroup:
        """Name the cgroup to hit: the chosen replica's, or the one of them all."""
        path = self.servers()[0].cgroup if self.options.replica else self.workload.cgroup
        if path is None:
            raise FaultError("the workload has no cgroup: start `tailcause-workload up` as root")
        return Cgroup(discover(), path)


class Held(Protocol):
    """Something that keeps a fault in force while this process has it."""

    def let_go(self) -> None:
        """End that part of the fault; its own death would do the same."""


@dataclass(frozen=True)
class Injection:
    """A fault in force: what it hit, with which figures, and the processes and holds that keep it up."""

    target: str
    parameters: dict[str, object]
    started_unix_s: float = field(default_factory=time.time)
    processes: tuple["subprocess.Popen[bytes]", ...] = ()
    held: tuple[Held, ...] = ()


class Fault(Protocol):
    """One way to disturb the workload."""

    @property
    def name(self) -> str:
        """Name on the command line."""

    @property
    def kind(self) -> FaultKind:
        """What a diagnosis should make of it."""

    @property
    def description(self) -> str:
        """One line for `fault --list`."""

    @property
    def variants(self) -> Sequence[str]:
        """Names that `--variant` takes; one is drawn from the seed otherwise."""

    @property
    def needs(self) -> Sequence[str]:
        """Words that `up` must have been started with, such as `--network`."""

    def inject(self, context: FaultContext) -> Injection:
        """Put the fault in force; `FaultError` where that is impossible."""


def interpolate(table: Sequence[tuple[float, float]], x: float) -> float:
    """Read a table of (x, y) with rising x, linear between rows and flat outside."""
    if x <= table[0][0]:
        return table[0][1]
    for (x0, y0), (x1, y1) in pairwise(table):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return table[-1][1]
