"""Stalls for memory, major faults and OOM kills by cgroup."""

import logging
import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from ebpf.errors import LoadError
from ebpf.layout import MAX_CGROUPS, MEMORY, OOM, SLOTS, STALL_KEY, STALLS
from ebpf.libbpf import Object
from ebpf.maps import RingBuffer
from ebpf.perf import online_cpus, open_major_faults
from ebpf.probe import Kernel
from ebpf.probes.counting import drops
from ebpf.probes.sched import sum_per_cpu
from ebpf.reading import Histogram, Reading, Readings

_log = logging.getLogger(__name__)

HOOKS = {
    "reclaim_begin": "mm_vmscan_direct_reclaim_begin",
    "reclaim_end": "mm_vmscan_direct_reclaim_end",
    "limit_begin": "mm_vmscan_memcg_reclaim_begin",
    "limit_end": "mm_vmscan_memcg_reclaim_end",
    "compaction_begin": "mm_compaction_begin",
    "compaction_end": "mm_compaction_end",
}
"""Program → tracepoint."""
VICTIM_HOOKS = {"victim_task": "mark_victim"}
OLD_VICTIM_HOOKS = {"victim_signal": "signal_generate", "victim_number": "mark_victim"}
MAJOR_FAULT = "major_fault"
_KEPT_KILLS = 64


class Stall(IntEnum):
    """What a thread waits for (enum tc_stall)."""

    RECLAIM = 0
    LIMIT = 1
    COMPACTION = 2


@dataclass(frozen=True)
class OomKill:
    """The out-of-memory killer's victim."""

    pid: int
    comm: str
    cgroup: str
    at_monotonic_s: float


class Mem:
    """The memory probe; OOM kills go to `deliver` when the probe is read or polled, and the last are kept."""

    name = "mem"

    def __init__(
        self,
        deliver: Callable[[OomKill], None] | None = None,
        hooks: Mapping[str, str] = HOOKS,
    ) -> None:
        self.kills: deque[OomKill] = deque(maxlen=_KEPT_KILLS)
        self._deliver, self._wanted = deliver, hooks
        self._hooks: Mapping[str, str] = {}
        self._object: Object | None = None
        self._kernel: Kernel | None = None
        self._ring: RingBuffer | None = None
        self._forgotten_events = 0

    def attach(self, kernel: Kernel) -> None:
        """Load and attach to reclaim, compaction and the OOM killer, and to the major faults of every CPU."""
        try:
            self._attach(kernel, VICTIM_HOOKS)
        except LoadError:  # the release does not tell: 6.8's change is in later 6.1s too
            self._attach(kernel, OLD_VICTIM_HOOKS)

    def _attach(self, kernel: Kernel, victims: Mapping[str, str]) -> None:
        self._hooks = {**self._wanted, **victims}
        opened = kernel.open(self.name)
        try:
            for program, hook in self._hooks.items():
                opened.set_hook(program, hook)
            opened.load()
            kernel.share_cgroups(opened)
            self._ring = RingBuffer(kernel.library, opened.map("oom_kills"), self._on_kill)
            for program in self._hooks:
                opened.attach(program)
            for cpu in online_cpus():
                opened.attach_perf_event(MAJOR_FAULT, open_major_faults(cpu))
        except BaseException:
            self._object = opened
            self.detach()
            raise
        self._object, self._kernel, self._forgotten_events = opened, kernel, 0

    def poll(self) -> int:
        """Deliver the OOM kills that have happened; return how many."""
        return self._ring.consume() if self._ring else 0

    def read(self) -> Readings:
        """Deliver OOM kills; return stalls, major faults and kills of every cgroup."""
        self.poll()
        if self._object is None or self._kernel is None:
            return Readings()
        series: list[Reading] = []
        events = self._forgotten_events
        for key, raw in self._object.map("stalls").items():
            slot, stall = STALL_KEY.unpack(key)
            labels = {"cgroup": self._kernel.cgroup(slot), "stall": Stall(stall).name.lower()}
            *slots, ns = STALLS.unpack(raw)
            series.append(Reading("mem.stall", labels, Histogram(tuple(slots), ns / 1e9)))
            events += 2 * sum(slots)
        for slot, (faults, kills) in self._counters(self._object).items():
            labels = {"cgroup": self._kernel.cgroup(slot)}
            series.append(Reading("mem.major_faults", labels, float(faults)))
            series.append(Reading("mem.oom_kills", labels, float(kills)))
            events += faults + kills
        lost = drops(self._kernel.library, self._object, self.programs().values())
        return Readings(tuple(series), lost, events)

    def forget(self, slots: frozenset[int]) -> None:
        """Clear what was counted under slots that are given to other cgroups."""
        if self._object is None:
            return
        stalls, memory = self._object.map("stalls"), self._object.map("memory")
        for key, raw in stalls.items():
            if STALL_KEY.unpack(key)[0] in slots and stalls.delete(key):
                self._forgotten_events += 2 * sum(STALLS.unpack(raw)[:SLOTS])
        for slot, counters in self._counters(self._object).items():
            if slot in slots:
                memory.update(struct.pack("=I", slot), bytes(memory.value_bytes))
                self._forgotten_events += sum(counters)

    def programs(self) -> Mapping[str, int]:
        """Return the attached programs."""
        if self._object is None:
            return {}
        return {name: self._object.program_fd(name) for name in (*self._hooks, MAJOR_FAULT)}

    def detach(self) -> None:
        """Detach and unload."""
        if self._ring is not None:
            self._ring.close()
            self._ring = None
        if self._object is not None:
            self._object.close()
            self._object = None

    def _counters(self, opened: Object) -> dict[int, tuple[int, ...]]:
        found = opened.map("memory")
        return sum_per_cpu(found.chunks(MAX_CGROUPS), MEMORY.size, found.value_bytes)

    def _on_kill(self, raw: bytes) -> None:
        at_ns, tgid, slot, comm = struct.unpack(OOM.format, raw)
        kill = OomKill(
            pid=tgid,
            comm=comm.split(b"\0")[0].decode(errors="replace"),
            cgroup=self._kernel.cgroup(slot) if self._kernel else "other",
            at_monotonic_s=at_ns / 1e9,
        )
        _log.warning("out of memory pid=%d comm=%r cgroup=%s", kill.pid, kill.comm, kill.cgroup)
        self.kills.append(kill)
        if self._deliver is not None:
            self._deliver(kill)
