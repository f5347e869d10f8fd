"""One GPU with its MIG instances: everything that is read of it, on the thread that is its own."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from agent.gpu import health, mig
from agent.gpu.counters import LinkTraffic, Traffic
from agent.gpu.fields import FIELDS, Value, memory
from agent.gpu.gpm import Gpm
from agent.gpu.identity import Identity, identify
from agent.gpu.part import Part, Readers
from agent.gpu.processes import GpuProcesses, Places
from agent.gpu.slow_fields import SLOW_FIELDS, pcie_throughput
from agent.telemetry.model import Sample

_SLOW_ROUNDS = 10
_FORGIVING_ROUNDS = 300


@dataclass(frozen=True)
class DeviceContext:
    """What the devices of a session have in common."""

    nvml: Any
    driver: str
    places: Places
    now_unix_ns: Callable[[], int]
    register: Callable[[Any, Identity], None]
    """Told the handle of each GPU once, for its events."""


@dataclass
class _Member:
    """The GPU or an instance of it, with what must be freed and counted."""

    part: Part
    gpm: Gpm
    processes: GpuProcesses


@dataclass(frozen=True)
class Reading:
    """What a GPU came to: its samples, and what failed or was refused of it, by field."""

    samples: list[Sample]
    failed: dict[str, str] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()


class Device:
    """Reads one GPU; called from one thread at a time. `identity` is there once the GPU has answered."""

    def __init__(self, index: int, context: DeviceContext) -> None:
        self.index = index
        self.identity: Identity | None = None
        self._context = context
        self._round = 0
        self._handle: Any = None
        self._gpu: _Member | None = None
        self._instances: dict[str, _Member] = {}
        self._opening = "handle"
        self.given_up = threading.Event()

    @property
    def at(self) -> str:
        """Return what is being read, of a call that hangs."""
        members = [self._gpu, *self._instances.values()]
        return next((m.part.at for m in members if m is not None and m.part.at), self._opening)

    @property
    def overflow(self) -> int:
        """Return how many processes were left out so far, for their number."""
        members = [self._gpu, *self._instances.values()]
        return sum(member.processes.overflow for member in members if member is not None)

    def read(self) -> Reading:
        """Return what there is of the GPU and its instances; the `NVMLError`s of a GPU as a whole go through."""
        slow = not self._round or (self._round + self.index) % _SLOW_ROUNDS == 0  # not all at once
        gpu = self._gpu or self._open()
        if slow:
            self._list_instances(gpu.part.identity)
        members = [gpu, *self._instances.values()]
        if self._round % _FORGIVING_ROUNDS == 0:
            for member in members:
                member.part.forgive()
        samples = [sample for m in members for sample in self._read(m.part, slow=slow)]
        self._round += 1
        return Reading(
            samples,
            {name: reason for m in members for name, reason in m.part.failed.items()},
            frozenset(name for m in members for name in m.part.refused),
        )

    def _read(self, part: Part, *, slow: bool) -> Iterator[Sample]:
        now = self._context.now_unix_ns
        values = part.read(now, slow=slow)
        yield part.sample(("tailcause.gpu.info", 1.0, part.identity.info), now())
        yield from part.samples()
        if not part.identity.parent:
            for value in health.states(health.judge(values)):
                yield part.sample(value, now())
        part.at = ""

    def _open(self) -> _Member:
        nvml = self._context.nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(self.index)
        self._opening = "identity"
        self.identity = identify(nvml, self._handle, self.index, self._context.driver)
        self._opening = "events"
        self._context.register(self._handle, self.identity)
        self._gpu = self._member(self._handle, self.identity, _gpu_readers)
        return self._gpu

    def _list_instances(self, gpu: Identity) -> None:
        """Take up the instances that were made, and drop those that are gone."""
        nvml = self._context.nvml
        found = {i.uuid: (handle, i) for handle, i in mig.instances(nvml, self._handle, gpu)}
        for uuid in self._instances.keys() - found.keys():
            self._instances.pop(uuid).gpm.close(nvml)
        for uuid, (handle, identity) in found.items():
            if uuid not in self._instances:
                self._instances[uuid] = self._member(handle, identity, _instance_readers)

    def _member(
        self, handle: Any, identity: Identity, readers: "Callable[[_Kit], Readers]"
    ) -> _Member:
        nvml = self._context.nvml
        gpm = Gpm(nvml, mig.gpu_instance(identity))
        processes = GpuProcesses(self._context.places, utilization=not identity.parent)
        kit = _Kit(self._handle, gpm, processes, Traffic(nvml), self._instances, self.given_up)
        return _Member(Part(nvml, handle, identity, readers(kit)), gpm, processes)

    def close(self) -> None:
        """Free what NVML has allocated, on the thread of the reading, or once no reading is under way."""
        for member in (self._gpu, *self._instances.values()):
            if member is not None:
                member.gpm.close(self._context.nvml)
        self._gpu, self._instances = None, {}


@dataclass(frozen=True)
class _Kit:
    """What the readers of a member are made from."""

    gpu: Any
    gpm: Gpm
    processes: GpuProcesses
    traffic: Traffic
    instances: dict[str, _Member]
    given_up: threading.Event


def _gpu_readers(kit: _Kit) -> Readers:
    links = LinkTraffic()

    def processes(nvml: Any, device: Any) -> Iterator[Value]:
        return iter(()) if kit.instances else kit.processes.read(nvml, device)

    def throughput(nvml: Any, device: Any) -> Iterator[Value]:
        return iter(()) if kit.traffic.counts_pcie else pcie_throughput(nvml, device)

    fast = (
        *FIELDS,
        ("traffic", kit.traffic.read),
        ("activity", kit.gpm.read),
        ("processes", processes),
    )
    slow = (*SLOW_FIELDS, ("NVLink traffic", links.read), ("PCIe throughput", throughput))
    return Readers(kit.given_up, fast, slow)


def _instance_readers(kit: _Kit) -> Readers:
    """Return what an instance has of its own; the rest is the GPU's."""

    def activity(nvml: Any, _: Any) -> Iterator[Value]:
        return kit.gpm.read(nvml, kit.gpu)

    fast = (("memory", memory), ("activity", activity), ("processes", kit.processes.read))
    return Readers(kit.given_up, fast)
