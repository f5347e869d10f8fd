"""Run-queue delay by cgroup, and whose threads held the CPU meanwhile."""

import struct
from collections import defaultdict
from collections.abc import Mapping

from ebpf.baseline import Baseline
from ebpf.layout import DELAY, MAX_CGROUPS, PAIR, SLOTS, stats
from ebpf.libbpf import Object
from ebpf.maps import Map
from ebpf.probe import Kernel
from ebpf.reading import Histogram, Reading, Readings

PAIRS = 1024
SHARED = ("threads", "watched", "watch_generation")
_STATE_SINCE = (5, 18)
_DELAYED_DEQUEUE_SINCE = (6, 12)


class Sched:
    """The scheduler probe; the threads' states that it keeps serve the span probe too."""

    name = "sched"

    def __init__(self) -> None:
        self._object: Object | None = None
        self._kernel: Kernel | None = None
        self._programs: tuple[str, ...] = ()
        self._delays_before: Baseline[int] = Baseline(lambda slot: (slot,))
        self._pairs_before: Baseline[tuple[int, int]] = Baseline(lambda pair: pair)

    def attach(self, kernel: Kernel) -> None:
        """Load and attach to sched_switch."""
        self._programs = _programs_for(kernel.release)
        opened = kernel.open(self.name)
        try:
            for program in self._programs:
                opened.select(program, True)
            opened.load()
            for name in SHARED:
                kernel.shared.setdefault(name, opened.map(name))
            kernel.share_cgroups(opened)
            for program in self._programs:
                opened.attach(program)
        except BaseException:
            opened.close()
            raise
        self._delays_before.clear()
        self._pairs_before.clear()
        self._object, self._kernel = opened, kernel

    def read(self) -> Readings:
        """Return delay histograms, involuntary switches and the matrix of who waited for whom."""
        if self._object is None or self._kernel is None:
            return Readings()
        delays = self._delays(self._object.map("delays"))
        series = [
            reading
            for slot, delay in self._delays_before.since(delays).items()
            for reading in self._of_cgroup(slot, delay)
        ]
        matrix = self._pairs_before.since(self._matrix(self._object))
        for (victim, aggressor), (ns,) in matrix.items():
            labels = {
                "cgroup": self._kernel.cgroup(victim),
                "aggressor": self._kernel.cgroup(aggressor),
            }
            series.append(Reading("runqueue.wait_on", labels, ns / 1e9))
        events = sum(sum(delay[:SLOTS]) for delay in delays.values())
        return Readings(
            tuple(series), stats(self._object.map(".bss").lookup(b"\0" * 4) or b""), events
        )

    def forget(self, slots: frozenset[int]) -> None:
        """Count afresh under slots that are given to other cgroups."""
        if self._object is not None:
            self._delays_before.forget(self._delays(self._object.map("delays")), slots)
            self._pairs_before.forget(self._matrix(self._object), slots)

    def programs(self) -> Mapping[str, int]:
        """Return the programs that are attached."""
        opened = self._object
        return {name: opened.program_fd(name) for name in self._programs} if opened else {}

    def detach(self) -> None:
        """Detach and unload."""
        if self._object is not None and self._kernel is not None:
            for name in SHARED:
                self._kernel.shared.pop(name, None)
            self._object.close()
            self._object = None

    def _of_cgroup(self, slot: int, delay: tuple[int, ...]) -> list[Reading]:
        if self._kernel is None:
            return []
        labels = {"cgroup": self._kernel.cgroup(slot)}
        histogram = Histogram(delay[:SLOTS], delay[SLOTS] / 1e9)
        return [
            Reading("runqueue.delay", labels, histogram),
            Reading("runqueue.involuntary_switches", labels, float(delay[SLOTS + 1])),
            Reading("runqueue.throttled", labels, delay[SLOTS + 2] / 1e9),
        ]

    def _delays(self, found: Map) -> dict[int, tuple[int, ...]]:
        """Sum the per-CPU histograms of every slot that has any event."""
        return sum_per_cpu(found.read_array(MAX_CGROUPS), DELAY.size, found.value_bytes)

    def _matrix(self, opened: Object) -> dict[tuple[int, int], tuple[int]]:
        """Sum what was written back and what still lies in the per-CPU caches, in nanoseconds."""
        sums: dict[tuple[int, int], int] = defaultdict(int)
        for key, value in opened.map("matrix").items():
            aggressor, victim = struct.unpack("=II", key)
            sums[victim, aggressor] += struct.unpack("=Q", value)[0]
        for victim, aggressor, ns in PAIR.iterate(opened.map("pairs").read_array(PAIRS)):
            if ns:
                sums[victim, aggressor] += ns
        return {pair: (ns,) for pair, ns in sums.items()}


def _programs_for(release: tuple[int, int]) -> tuple[str, ...]:
    switch = "switch_with_state" if release >= _STATE_SINCE else "switch_without_state"
    return (switch, "note_moved_asleep") if release >= _DELAYED_DEQUEUE_SINCE else (switch,)


def sum_per_cpu(raw: bytes, size: int, per_entry: int) -> dict[int, tuple[int, ...]]:
    """Add up the per-CPU values (u64 fields, `size` bytes each) of every entry of an array that is not all 0."""
    found: dict[int, tuple[int, ...]] = {}
    fields = size // 8
    empty = b"\0" * per_entry
    for index in range(len(raw) // per_entry):
        entry = raw[index * per_entry : (index + 1) * per_entry]
        if entry == empty:
            continue
        values = struct.unpack(f"={per_entry // 8}Q", entry)
        found[index] = tuple(sum(values[field::fields]) for field in range(fields))
    return found
