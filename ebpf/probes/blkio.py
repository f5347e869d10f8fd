"""Block I/O by cgroup and device: time in the queue and time in the device."""

import struct
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path

from ebpf.errors import NotSupportedError
from ebpf.layout import FLIGHT, IO, IO_KEY, SLOTS
from ebpf.libbpf import Object
from ebpf.maps import Map
from ebpf.probe import Kernel
from ebpf.probes.counting import drops, per_cpu_items
from ebpf.reading import Histogram, Reading, Readings

HOOKS = {
    "io_insert": "block_rq_insert",
    "io_requeue": "block_rq_requeue",
    "io_merge": "block_rq_merge",
    "io_issue": "block_rq_issue",
    "io_complete": "block_rq_complete",
}
"""Program → tracepoint."""
_SINCE = (5, 12)
_MINOR_BITS = 20
_NOT_IN_FLIGHT = 0
_QUEUE, _SERVICE = slice(0, SLOTS), slice(SLOTS, 2 * SLOTS)
_QUEUE_NS, _SERVICE_NS, _INSERTED = 2 * SLOTS, 2 * SLOTS + 1, 2 * SLOTS + 2


class Kind(IntEnum):
    """What a request does (enum tc_io_kind)."""

    READ = 0
    WRITE = 1
    OTHER = 2


class Blkio:
    """The block I/O probe; `hooks` names the tracepoints, by program."""

    name = "blkio"

    def __init__(
        self, hooks: Mapping[str, str] = HOOKS, devices: Path = Path("/sys/dev/block")
    ) -> None:
        self._hooks, self._devices = hooks, devices
        self._object: Object | None = None
        self._kernel: Kernel | None = None
        self._names: dict[int, str] = {}
        self._forgotten_events = 0

    def attach(self, kernel: Kernel) -> None:
        """Load and attach to the tracepoints of a request's life."""
        if kernel.release < _SINCE:
            raise NotSupportedError("the blkio probe needs Linux 5.12 or newer")
        opened = kernel.open(self.name)
        try:
            for program, hook in self._hooks.items():
                opened.set_hook(program, hook)
            opened.load()
            kernel.share_cgroups(opened)
            for program in self._hooks:
                opened.attach(program)
        except BaseException:
            opened.close()
            raise
        self._object, self._kernel, self._forgotten_events = opened, kernel, 0

    def read(self) -> Readings:
        """Return queue and service times of finished requests."""
        if self._object is None or self._kernel is None:
            return Readings()
        series: list[Reading] = []
        events = self._forgotten_events
        for key, counters in per_cpu_items(self._object.map("latencies"), IO.size):
            device, slot, kind = IO_KEY.unpack(key)
            labels = {
                "cgroup": self._kernel.cgroup(slot),
                "device": self.device(device),
                "operation": Kind(kind).name.lower(),
            }
            queue = Histogram(counters[_QUEUE], counters[_QUEUE_NS] / 1e9)
            service = Histogram(counters[_SERVICE], counters[_SERVICE_NS] / 1e9)
            series.append(Reading("blkio.queue", labels, queue))
            series.append(Reading("blkio.service", labels, service))
            events += _events(counters)
        lost = drops(self._kernel.library, self._object, self.programs().values())
        return Readings(tuple(series), lost, events)

    def forget(self, slots: frozenset[int]) -> None:
        """Remove what was counted under slots that are given to other cgroups."""
        if self._object is None:
            return
        found = self._object.map("latencies")
        for key, counters in per_cpu_items(found, IO.size):
            if IO_KEY.unpack(key)[1] in slots and found.delete(key):
                self._forgotten_events += _events(counters)
        _forget_owners(self._object.map("in_flight"), slots)

    def programs(self) -> Mapping[str, int]:
        """Return the attached programs."""
        opened = self._object
        return {name: opened.program_fd(name) for name in self._hooks} if opened else {}

    def detach(self) -> None:
        """Detach and unload."""
        if self._object is not None:
            self._object.close()
            self._object = None

    def device(self, number: int) -> str:
        """Return the name of a device ("vda"), or its numbers ("254:0") when it is gone."""
        if number not in self._names:
            numbers = f"{number >> _MINOR_BITS}:{number & ((1 << _MINOR_BITS) - 1)}"
            try:
                self._names[number] = (self._devices / numbers).readlink().name
            except OSError:
                return numbers
        return self._names[number]


def _events(counters: tuple[int, ...]) -> int:
    """Each finished request was issued and completed, and inserted as often as it says."""
    return 2 * sum(counters[_SERVICE]) + counters[_INSERTED]


def _forget_owners(in_flight: Map, slots: frozenset[int]) -> None:
    """Clear the places of finished requests that remember one of the slots."""
    raw = in_flight.read_array(in_flight.max_entries)
    for place, (_, _, _, _, _, slot, _, _, state) in enumerate(FLIGHT.iterate(raw)):
        if slot in slots and state == _NOT_IN_FLIGHT:
            in_flight.update(struct.pack("=I", place), bytes(FLIGHT.size))
