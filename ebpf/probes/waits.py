"""The wait counters of the threads of watched processes, whenever asked: for spans that no hook has seen."""

import struct
from collections.abc import Mapping, Sequence

from ebpf.errors import NotSupportedError
from ebpf.layout import SAMPLE, stats
from ebpf.libbpf import Object
from ebpf.maps import Map
from ebpf.probe import Kernel
from ebpf.reading import Readings

PROGRAM = "walk_threads"
MAX_SINGLE_WALKS = 64
"""For so many processes each is walked by itself; for more, or before Linux 6.1, all of the machine's threads."""


class Waits:
    """A task iterator over the sched probe's counters; costs nothing but when `sample` is called."""

    name = "waits"

    def __init__(self) -> None:
        self._object: Object | None = None
        self._watched: Map | None = None
        self._generation_map: Map | None = None
        self._generation = b""
        self._walks: tuple[str, ...] = ()
        self._threads = 0

    def attach(self, kernel: Kernel) -> None:
        """Load the iterator; needs the sched probe, whose counters it reads."""
        if "threads" not in kernel.shared:
            raise NotSupportedError("the waits probe needs the sched probe, which is not attached")
        opened = kernel.open(self.name)
        try:
            opened.load()
            opened.detach(opened.attach_iterator(PROGRAM))  # can this kernel do it at all?
        except BaseException:
            opened.close()
            raise
        self._object = opened
        self._watched = opened.map("watched")
        self._generation_map = opened.map("watch_generation")

    def sample(self) -> bytes:
        """Return the threads of all watched processes as they are now, one `tc_sample` after another."""
        if self._object is None:
            return b""
        self._follow(self._object)
        opened = self._object
        raw = b"".join([opened.read_iterator(walk) for walk in self._walks])
        self._threads += len(raw) // SAMPLE.size
        return raw

    def read(self) -> Readings:
        """Return how many threads could not be read, and how many were."""
        if self._object is None:
            return Readings()
        raw = self._object.map(".bss").lookup(b"\0" * 4) or b""
        return Readings((), stats(raw), self._threads)

    def programs(self) -> Mapping[str, int]:
        """Return the iterator's program."""
        return {PROGRAM: self._object.program_fd(PROGRAM)} if self._object else {}

    def detach(self) -> None:
        """Detach and unload."""
        if self._object is not None:
            self._object.close()
        self._object = self._watched = self._generation_map = None
        self._generation, self._walks = b"", ()

    def _follow(self, opened: Object) -> None:
        """Walk other processes after the list of watched ones has changed."""
        if self._generation_map is None or self._watched is None:
            return
        generation = self._generation_map.lookup(b"\0" * 4) or b""
        if generation == self._generation:
            return
        for walk in self._walks:
            opened.detach(walk)
        self._walks = ()
        keys = self._watched.keys
        self._walks = _start_walks(opened, [struct.unpack("=I", key)[0] for key in keys()])
        self._generation = generation


def _start_walks(opened: Object, pids: Sequence[int]) -> tuple[str, ...]:
    if not pids:
        return ()
    started: list[str] = []
    try:
        if len(pids) <= MAX_SINGLE_WALKS:
            started.extend(opened.attach_iterator(PROGRAM, pid) for pid in pids)
    except NotSupportedError:
        while started:
            opened.detach(started.pop())
    return tuple(started) or (opened.attach_iterator(PROGRAM),)
