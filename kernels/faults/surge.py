"""Demand `surge`: more requests of the same kind than the server can answer at ease."""

from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultKind, Injection, interpolate
from kernels.faults.demand import measure, send_more

EXTRA_CORES = ((1.5, 0.78), (3.0, 1.02), (6.0, 1.2))
"""(P99 factor, cores that the extra requests would take at the present cost of a request).

Measured at 20 requests/s on 0.41 cores. Grown batches make requests cheaper, so that the single
engine thread carries more than one core's worth of today's requests.
"""


@dataclass(frozen=True)
class SurgeFault:
    """Starts a second load generator beside the one that runs."""

    name: str = "surge"
    kind: FaultKind = FaultKind.DEMAND
    description: str = "a second load generator multiplies the request rate"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def inject(self, context: FaultContext) -> Injection:
        """Measure the request rate that is there, then add to it."""
        now = measure(context)
        extra = now.rate_per_core * interpolate(EXTRA_CORES, context.options.intensity)
        process = send_more(context, self.name, extra)
        return Injection(
            target=context.workload.service,
            parameters={
                "rate_before": round(now.rate, 2),
                "cores_before": round(now.cores, 3),
                "extra_rate": round(extra, 2),
            },
            processes=(process,),
        )
