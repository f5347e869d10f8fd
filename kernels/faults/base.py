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
from kernels.supervisor.state import WorkloadState


class FaultKind(StrEnum):
    """What a diagnosis should make of it: a cause, more work, or nothing."""

    FAULT = "fault"
    DEMAND = "demand"
    DECOY = "decoy"


class FaultError(WorkloadError):
    """The fault cannot be injected here."""


@dataclass(frozen=True)
class FaultOptions:
    """What the user chose; `intensity` is the factor by which the P99 should rise."""

    intensity: float
    seed: int
    variant: str | None = None
    url: str | None = None


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
        return self.options.url or f"http://127.0.0.1:{self.workload.port}"

    def workload_cgroup(self) -> Cgroup:
        """Name the cgroup that the server runs in."""
        if self.workload.cgroup is None:
            raise FaultError("the workload has no cgroup: start `tailcause-workload up` as root")
        return Cgroup(discover(), self.workload.cgroup)


@dataclass(frozen=True)
class Injection:
    """A fault in force: what it hit, with which figures, and the processes that keep it up."""

    target: str
    parameters: dict[str, object]
    started_unix_s: float = field(default_factory=time.time)
    processes: tuple["subprocess.Popen[bytes]", ...] = ()


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
