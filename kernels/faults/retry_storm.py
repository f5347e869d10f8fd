"""Fault `retry-storm`: clients that lose patience and ask again, which makes the server slower still."""

from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultKind, Injection, interpolate
from kernels.faults.demand import measure, send_more

RETRIES = 5
PATIENCE = 0.9
"""Time-out as a multiple of the usual latency: already in quiet times about half of these clients ask twice."""

EXTRA_CORES = ((1.5, 0.2), (3.0, 0.45), (6.0, 0.7))
"""(P99 factor, cores that the requests would take if none was sent twice), at 20 requests/s."""


@dataclass(frozen=True)
class RetryStormFault:
    """Starts a second load generator that gives up early and tries again at once.

    The server has done part of the work by then: what arrives grows with its latency.
    """

    name: str = "retry-storm"
    kind: FaultKind = FaultKind.FAULT
    description: str = "impatient clients: every time-out becomes one more request"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def inject(self, context: FaultContext) -> Injection:
        """Measure the latency that there is, then add clients who wait no longer than that."""
        now = measure(context)
        extra = now.rate_per_core * interpolate(EXTRA_CORES, context.options.intensity)
        timeout_s = max(0.01, PATIENCE * now.usual_s)
        words = ("--timeout", f"{timeout_s * 1000:.0f}ms", "--retries", str(RETRIES))
        process = send_more(context, self.name, extra, words)
        return Injection(
            target=context.workload.service,
            parameters={
                "rate_before": round(now.rate, 2),
                "extra_rate": round(extra, 2),
                "timeout_s": round(timeout_s, 4),
                "retries": RETRIES,
            },
            processes=(process,),
        )
