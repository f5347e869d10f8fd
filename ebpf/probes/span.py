"""The ledger of spans whose processor calls libtailcause_span.so."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ebpf.elf import symbol_offset
from ebpf.errors import NotSupportedError
from ebpf.layout import SPAN, WAITS, Wait, stats
from ebpf.libbpf import Object
from ebpf.maps import RingBuffer
from ebpf.probe import Kernel
from ebpf.reading import Readings
from ebpf.uprobes import Point, Uprobes

MOVED = 1
HOOKS = {"span_start": "tailcause_span_start", "span_end": "tailcause_span_end"}


@dataclass(frozen=True)
class SpanWaits:
    """What one span's thread waited for; `waits_s` is empty when the span moved between threads."""

    trace_id: str
    span_id: str
    start_monotonic_s: float
    end_monotonic_s: float
    pid: int
    tid: int
    cgroup: str
    waits_s: Mapping[Wait, float]


class SpanProbe:
    """Uprobes on the span library; finished spans go to `deliver` when the probe is read or polled."""

    name = "span"

    def __init__(self, libraries: tuple[Path, ...], deliver: Callable[[SpanWaits], None]) -> None:
        self._libraries = libraries
        self._deliver = deliver
        self._object: Object | None = None
        self._ring: RingBuffer | None = None
        self._kernel: Kernel | None = None
        self._uprobes: Uprobes | None = None
        self._spans = 0

    def attach(self, kernel: Kernel) -> None:
        """Attach to every known copy of the library; needs the sched probe, which keeps the threads' counters."""
        if "threads" not in kernel.shared:
            raise NotSupportedError("the span probe needs the sched probe, which is not attached")
        if not self._libraries:
            raise NotSupportedError(
                "libtailcause_span.so is not built: run make (it needs a C compiler)"
            )
        opened = kernel.open(self.name)
        self._object, self._kernel = opened, kernel
        self._uprobes = Uprobes(opened, kernel.release)
        try:
            self._uprobes.prepare(HOOKS)
            opened.load()
            self._ring = RingBuffer(kernel.library, opened.map("spans"), self._on_record)
            for library in self._libraries:
                for program, symbol in HOOKS.items():
                    self._uprobes.attach(
                        program, library, [Point(symbol_offset(library, symbol), cookie=0)]
                    )
        except BaseException:
            self.detach()
            raise

    def poll(self) -> int:
        """Deliver the spans that have finished; return how many. Nobody is woken when one has: poll in time."""
        return self._ring.consume() if self._ring else 0

    def read(self) -> Readings:
        """Deliver what is there and return what was lost."""
        self.poll()
        if self._object is None:
            return Readings()
        raw = self._object.map(".bss").lookup(b"\0" * 4) or b""
        return Readings((), stats(raw), 2 * self._spans)

    def programs(self) -> Mapping[str, int]:
        """Return the start and end programs."""
        return {name: self._object.program_fd(name) for name in HOOKS} if self._object else {}

    def detach(self) -> None:
        """Detach and unload."""
        if self._uprobes is not None:
            self._uprobes.close()
            self._uprobes = None
        if self._ring is not None:
            self._ring.close()
            self._ring = None
        if self._object is not None:
            self._object.close()
            self._object = None

    def _on_record(self, raw: bytes) -> None:
        fields = SPAN.unpack(raw)
        trace_hi, trace_lo, span_id, start_ns, end_ns, tgid, tid, flags, slot = fields[:9]
        waits = (
            {}
            if flags & MOVED
            else {Wait(i): ns / 1e9 for i, ns in enumerate(fields[-WAITS:]) if ns}
        )
        self._spans += 1
        self._deliver(
            SpanWaits(
                trace_id=f"{trace_hi:016x}{trace_lo:016x}",
                span_id=f"{span_id:016x}",
                start_monotonic_s=start_ns / 1e9,
                end_monotonic_s=end_ns / 1e9,
                pid=tgid,
                tid=tid,
                cgroup=self._kernel.cgroup(slot) if self._kernel else "other",
                waits_s=waits,
            )
        )
