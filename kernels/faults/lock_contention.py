"""Fault `lock-contention`: a thread of the server holds the engine's lock for too long, again and again."""

from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultKind, Injection, interpolate
from kernels.faults.hook import NEEDS, disturb
from kernels.workload.hook_requests import HoldLock

PAUSE_S = 0.5
HOLD_S = ((1.5, 0.04), (3.0, 0.16), (6.0, 0.4))
"""(P99 factor, seconds that the lock is held each time), measured at 20 requests/s."""


@dataclass(frozen=True)
class LockContentionFault:
    """Asks the server by its hook; the engine and everybody who submits to it wait meanwhile."""

    name: str = "lock-contention"
    kind: FaultKind = FaultKind.FAULT
    description: str = "a thread of the server holds the engine's lock for too long"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = NEEDS

    def inject(self, context: FaultContext) -> Injection:
        """Have the lock held from now on."""
        request = HoldLock(interpolate(HOLD_S, context.options.intensity), PAUSE_S)
        held = disturb(context, request)
        figures: dict[str, object] = {"hold_s": request.hold_s, "pause_s": request.pause_s}
        return Injection(context.target, figures, held=held)
