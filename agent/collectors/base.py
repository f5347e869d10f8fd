"""What a collector is, and the three things it can come back with."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.errors import AgentError
from agent.gpu.settings import GpuSettings, GpuUsers
from agent.host.cgroup_walk import WalkLimits
from agent.host.paths import HostPaths
from agent.host.selection import Selection
from agent.kube.directory import Pods
from agent.kube.settings import KubeSettings
from agent.probes import Probes
from agent.servers.settings import ServerSettings
from agent.telemetry.model import Sample, SignalState


class NoData(AgentError):  # noqa: N818  it is an outcome, not an error
    """The machine does not have this signal (now): never the same as a 0.

    `remedy` says what to do about it, where something can be done; `samples` are those that could
    be had all the same, such as of the other GPUs.
    """

    def __init__(
        self,
        reason: str,
        state: SignalState = SignalState.NOT_SUPPORTED,
        *,
        remedy: str = "",
        samples: Sequence[Sample] = (),
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.state = state
        self.remedy = remedy
        self.samples = tuple(samples)


class Collector(Protocol):
    """Reads one signal; called from one thread at a time, never twice at once."""

    def collect(self) -> list[Sample]:
        """Return the current samples, or raise `NoData`; any other exception is a failure."""


@dataclass(frozen=True)
class CollectorContext:
    """What every collector is built from."""

    paths: HostPaths = field(default_factory=HostPaths)
    walk_limits: WalkLimits = field(default_factory=WalkLimits)
    max_open_files: int = 2048
    now_unix_ns: Callable[[], int] = time.time_ns
    probes: Probes | None = None
    """The agent's probes; a collector that is given none makes its own."""
    selection: Selection = field(default_factory=Selection)
    serving_pids: Callable[[], Iterable[int]] = tuple
    """Processes that send spans, the latest first."""
    gpu_pids: Callable[[], Iterable[int]] = tuple
    """Processes that use a GPU."""
    gpu: GpuSettings = field(default_factory=GpuSettings)
    gpu_users: GpuUsers = field(default_factory=GpuUsers)
    """Filled by the collector `gpu`, for `gpu_pids`."""
    kube: KubeSettings = field(default_factory=KubeSettings)
    pods: Pods = field(default_factory=Pods)
    """Filled by the collector `kube`, for everybody who joins something to a pod."""
    servers: ServerSettings = field(default_factory=ServerSettings)
