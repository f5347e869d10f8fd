"""Work that another thread does for a request, measured on that thread."""

from dataclasses import dataclass, field

from ebpf.hook.library import SpanLibrary
from kernels.workload.clock import Clock


@dataclass(slots=True)
class Work:
    """What will be a span: asked for in the event loop, started and ended on the thread that does it.

    A span from the event loop's point of view would hold the ways there and back as well, in which no thread works for
    it and of which the kernel can say nothing: for a short look-up these are nine tenths.
    """

    trace_id: int
    span_id: int
    clock: Clock
    asked_ns: int = field(default=0, init=False)
    started_ns: int = field(default=0, init=False)
    ended_ns: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.asked_ns = self.clock.now_ns()

    def start(self, library: SpanLibrary) -> None:
        """Mark the start, on the thread that does the work."""
        library.start(self.trace_id, self.span_id)
        self.started_ns = self.clock.now_ns()

    def end(self, library: SpanLibrary) -> None:
        """Mark the end, on the same thread."""
        self.ended_ns = self.clock.now_ns()
        library.end(self.trace_id, self.span_id)

    def close(self) -> tuple[int, int]:
        """Return start and end; it ends now where nobody waits for it any longer, and has no start before it began."""
        started_ns = self.started_ns
        return started_ns, self.ended_ns or self.clock.now_ns()
