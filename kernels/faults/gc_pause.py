"""Fault `gc-pause`: the server's heap is full of cyclic objects, and its collector stops the interpreter."""

from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultKind, Injection, interpolate
from kernels.faults.hook import NEEDS, disturb
from kernels.workload.hook_requests import CollectGarbage

PAUSE_S = 0.5
OBJECTS = ((1.5, 200_000), (3.0, 700_000), (6.0, 1_600_000))
"""(P99 factor, objects that each collection goes over), measured at 20 requests/s."""


@dataclass(frozen=True)
class GcPauseFault:
    """Asks the server by its hook; no thread of it runs Python while the collector is at work."""

    name: str = "gc-pause"
    kind: FaultKind = FaultKind.FAULT
    description: str = "garbage collections of a large heap stop the server"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = NEEDS

    def inject(self, context: FaultContext) -> Injection:
        """Have the heap filled and collected from now on."""
        objects = round(interpolate(OBJECTS, context.options.intensity))
        request = CollectGarbage(objects, PAUSE_S)
        held = disturb(context, request)
        figures: dict[str, object] = {"objects": objects, "pause_s": request.pause_s}
        return Injection(context.target, figures, held=held)
