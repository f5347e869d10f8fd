"""Run-queue delay by cgroup, and whose threads held the CPU meanwhile."""

import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping

from ebpf.baseline import Baseline
from ebpf.busiest import Busiest
from ebpf.layout import DELAY, MAX_CGROUPS, PAIR, SLOTS, stats
from ebpf.libbpf import Object
from ebpf.maps import Map
from ebpf.probe import Kernel
from ebpf.reading import Histogram, Reading, Readings

PAIRS = 1024
SHARED = ("threads", "watched", "watch_generation")
_SLOT_BITS = 32
_RANK_EVERY = 5
_STATE_SINCE = (5, 18)
_DELAYED_DEQUEUE_SINCE = (6, 12)


class Sched:
    """The scheduler probe; the threads' states that it keeps serve the span probe too.

    Of the pairs in the matrix it tells the `max_pairs` that grow most: 200 cgroups have 40 000. Which ones these are is
    found out in every fifth reading, because that takes longer than the reading.
    """

    name = "sched"

    def __init__(self, max_pairs: int = 1 << 16) -> None:
        self._max_pairs = max_pairs
        self._begin()

    def _begin(self) -> None:
        self._busiest: Busiest[int] = Busiest(self._max_pairs)
        self._told: set[int] = set()
        self._round = 0
        self._left_out = 0
        self._object: Object | None = None
        self._kernel: Kernel | None = None
        self._programs: tuple[str, ...] = ()
        self._delays_before: Baseline[int] = Baseline(lambda slot: (slot,))
        self._pairs_before: dict[int, int] = {}

    def attach(self, kernel: Kernel) -> None:
        """Load and attach to sched_switch."""
        self._begin()
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
        series += self._waits_on(self._object, self._kernel)
        events = sum(sum(delay[:SLOTS]) for delay in delays.values())
        lost = stats(self._object.map(".bss").lookup(b"\0" * 4) or b"")
        return Readings(tuple(series), lost, events, self._left_out)

    def _waits_on(self, opened: Object, kernel: Kernel) -> Iterator[Reading]:
        waited_ns = self._matrix(opened)
        for pair, before_ns in self._pairs_before.items():
            if waited_ns.get(pair) == before_ns:
                del waited_ns[pair]
            elif pair in waited_ns:
                waited_ns[pair] -= before_ns
        for pair in self._bounded(waited_ns):
            victim, aggressor = _slots_of(pair)
            labels = {"cgroup": kernel.cgroup(victim), "aggressor": kernel.cgroup(aggressor)}
            yield Reading("runqueue.wait_on", labels, waited_ns[pair] / 1e9)

    def _bounded(self, waited_ns: Mapping[int, int]) -> set[int]:
        if len(waited_ns) <= self._max_pairs:
            return set(waited_ns)
        if self._round % _RANK_EVERY == 0:
            self._told = self._busiest.pick(waited_ns)
        self._round += 1
        told = self._told & waited_ns.keys()
        self._left_out += len(waited_ns) - len(told)
        return told

    def forget(self, slots: frozenset[int]) -> None:
        """Count afresh under slots that are given to other cgroups."""
        if self._object is not None:
            self._delays_before.forget(self._delays(self._object.map("delays")), slots)
            for pair, ns in self._matrix(self._object).items():
                if not slots.isdisjoint(_slots_of(pair)):
                    self._pairs_before[pair] = ns

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
        return sum_per_cpu(found.chunks(MAX_CGROUPS), DELAY.size, found.value_bytes)

    def _matrix(self, opened: Object) -> dict[int, int]:
        """Sum what was written back and what still lies in the per-CPU caches, in nanoseconds.

        A pair's key is the kernel's: the victim's slot in the upper half, the aggressor's in the lower one.
        """
        sums: dict[int, int] = {}
        for keys, values in opened.map("matrix").batches():
            sums.update(zip(array("Q", keys), array("Q", values), strict=True))
        for victim, aggressor, ns in PAIR.iterate(opened.map("pairs").read_array(PAIRS)):
            if ns:
                pair = victim << _SLOT_BITS | aggressor
                sums[pair] = sums.get(pair, 0) + ns
        return sums


def _slots_of(pair: int) -> tuple[int, int]:
    return pair >> _SLOT_BITS, pair & (1 << _SLOT_BITS) - 1


def _programs_for(release: tuple[int, int]) -> tuple[str, ...]:
    switch = "switch_with_state" if release >= _STATE_SINCE else "switch_without_state"
    return (switch, "note_moved_asleep") if release >= _DELAYED_DEQUEUE_SINCE else (switch,)


def sum_per_cpu(chunks: Iterable[bytes], size: int, per_entry: int) -> dict[int, tuple[int, ...]]:
    """Add up the per-CPU values (u64 fields, `size` bytes each) of every entry of an array that is not all 0."""
    found: dict[int, tuple[int, ...]] = {}
    fields = size // 8
    empty = b"\0" * per_entry
    index = 0
    for raw in chunks:
        for start in range(0, len(raw), per_entry):
            entry = raw[start : start + per_entry]
            if entry != empty:
                values = struct.unpack(f"={per_entry // 8}Q", entry)
                by_cpu = (values[at : at + fields] for at in range(0, len(values), fields))
                found[index] = tuple(map(sum, zip(*by_cpu, strict=True)))
            index += 1
    return found
