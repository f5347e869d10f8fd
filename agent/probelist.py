"""Which probes an agent runs, from its settings and the probes that exist."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.mapmemory import held_bytes, open_maps
from ebpf.apiprobe import ApiOptions
from ebpf.hook.library import library_path
from ebpf.probe import Forgets, Kernel, Probe
from ebpf.probes.cuda import Cuda
from ebpf.probes.nccl import Nccl
from ebpf.probes.sched import Sched
from ebpf.probes.span import SpanProbe, SpanWaits
from ebpf.reading import Readings
from ebpf.registry import PROBES

SPAN = SpanProbe.name
GPU_API = ("cuda", "nccl")
"""Probes inside other people's processes, on when asked for: each call into the library costs microseconds."""
FOUNDATION = Sched.name
MAX_PAIRS = 512
"""Of those in which one cgroup waited for another."""
NEED_FOUNDATION = ("waits", SPAN, *GPU_API)
"""Probes that read the counters which the first one keeps: without it, theirs would stand still."""
BY_UPROBE = (SPAN, *GPU_API)
"""Probes whose trap costs more than their program."""


@dataclass(frozen=True)
class ProbeSettings:
    """What the configuration says of probes; no names stand for all."""

    enabled: bool = True
    names: tuple[str, ...] = ()
    cuda: bool = False
    watch: tuple[int, ...] = ()
    why_off: str = "switched off by configuration"


class Metered:
    """A probe, with the CPU time that its readings took and the maps that it brought."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.name = probe.name
        self.own_s = 0.0
        self._maps: Mapping[int, int] = {}

    def attach(self, kernel: Kernel) -> None:
        """Load and attach; a map that another probe has brought is not this one's."""
        before = open_maps()
        self.probe.attach(kernel)
        self._maps = {number: fd for number, fd in open_maps().items() if number not in before}

    @property
    def memory_bytes(self) -> int | None:
        """What its maps hold in the kernel; None where that cannot be told."""
        return held_bytes(self._maps) if self._maps else None

    def read(self) -> Readings:
        """Read, and count the time."""
        begun_s = time.thread_time()
        try:
            return self.probe.read()
        finally:
            self.own_s += time.thread_time() - begun_s

    def programs(self) -> Mapping[str, int]:
        """Return the loaded programs."""
        return self.probe.programs()

    def detach(self) -> None:
        """Detach and unload."""
        self._maps = {}
        self.probe.detach()


class MeteredForgetful(Metered):
    """The same for a probe that can forget a cgroup's slot: the session asks which ones can."""

    def __init__(self, probe: Probe, forgets: Forgets) -> None:
        super().__init__(probe)
        self._forgets = forgets

    def forget(self, slots: frozenset[int]) -> None:
        """Clear what was counted under these slots."""
        self._forgets.forget(slots)


def metered(probe: Probe) -> Metered:
    """Wrap a probe."""
    return MeteredForgetful(probe, probe) if isinstance(probe, Forgets) else Metered(probe)


def known() -> list[str]:
    """Return the names of all probes."""
    return [*PROBES, SPAN]


def wanted(settings: ProbeSettings) -> list[str]:
    """Return the names of the probes to run, in the order in which they are attached.

    Those that are not opted into are among them: they attach nowhere and say why.
    """
    return [name for name in known() if name in (settings.names or known())]


def build(settings: ProbeSettings, deliver: Callable[[SpanWaits], None]) -> list[Metered]:
    """Build the probes to run; finished spans go to `deliver`."""
    library = library_path()
    libraries = (library,) if library is not None else ()
    options = ApiOptions(enabled=settings.cuda)
    special: Mapping[str, Callable[[], Probe]] = {
        SPAN: lambda: SpanProbe(libraries, deliver),
        FOUNDATION: lambda: Sched(MAX_PAIRS),
        "cuda": lambda: Cuda(options),
        "nccl": lambda: Nccl(options),
    }
    return [metered({**PROBES, **special}[name]()) for name in wanted(settings)]
