"""Demand `tenant-mix`: one tenant begins to send much, wants long answers, and never asks the same twice."""

from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultKind, Injection, interpolate
from kernels.faults.demand import measure, send_more

OUTPUT_TOKENS = (60, 90, 140)
"""Shortest, median, longest; the usual median is 14."""

_COST = 90 / 14
EXTRA_CORES = ((1.5, 0.4), (3.0, 0.9), (6.0, 1.3))
"""(P99 factor, cores that the tenant would take if cost grew with the answer), at 20 requests/s."""


@dataclass(frozen=True)
class TenantMixFault:
    """Starts a second load generator for one tenant; the seed says which."""

    name: str = "tenant-mix"
    kind: FaultKind = FaultKind.DEMAND
    description: str = "one tenant sends much, with long answers that no cache knows"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def inject(self, context: FaultContext) -> Injection:
        """Measure what a request costs now, then add the tenant's."""
        now = measure(context)
        cores = interpolate(EXTRA_CORES, context.options.intensity)
        extra = now.rate_per_core * cores / _COST
        tenant = f"tenant-{context.rng('tenant').randrange(100, 200):04d}"
        lengths = ":".join(map(str, OUTPUT_TOKENS))
        words = ("--tenant", tenant, "--output-tokens", lengths, "--repeat-share", "0")
        process = send_more(context, self.name, extra, words)
        return Injection(
            target=context.workload.service,
            parameters={
                "tenant": tenant,
                "rate_before": round(now.rate, 2),
                "extra_rate": round(extra, 2),
                "output_tokens": list(OUTPUT_TOKENS),
            },
            processes=(process,),
        )
