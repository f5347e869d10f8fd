"""Calls the span library from the test itself, and takes what the probe delivers."""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ebpf.probes.span import SpanProbe, SpanWaits


@dataclass
class Spans:
    """The span library, and the spans that the probe has delivered."""

    library: Path
    call: ctypes.CDLL = field(init=False)
    got: list[SpanWaits] = field(default_factory=list)
    probe: SpanProbe = field(init=False)

    def __post_init__(self) -> None:
        self.call = ctypes.CDLL(str(self.library))
        self.probe = SpanProbe((self.library,), self.got.append)

    def start(self, span_id: int) -> None:
        """Begin a span on this thread."""
        self.call.tailcause_span_start(*map(ctypes.c_uint64, (1, 2, span_id)))

    def end(self, span_id: int) -> None:
        """End a span on this thread."""
        self.call.tailcause_span_end(*map(ctypes.c_uint64, (1, 2, span_id)))

    def take(self) -> list[SpanWaits]:
        """Return the spans that have come, and forget them."""
        self.probe.poll()
        taken, self.got[:] = list(self.got), []
        return taken

    def dropped(self) -> Mapping[str, int]:
        """Return what was lost so far."""
        return self.probe.read().dropped
