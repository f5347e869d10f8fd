"""Demand `long-prompts`: somebody begins to send prompts four times as long."""

from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultKind, Injection, interpolate
from kernels.faults.demand import measure, send_more

PROMPT_TOKENS = (240, 300, 380)
"""Shortest, median, longest; the usual median is 72."""

_COST = 300 / 72
EXTRA_CORES = ((1.5, 0.2), (3.0, 0.5), (6.0, 0.8))
"""(P99 factor, cores that the long prompts would take if cost grew with length), at 20 requests/s."""


@dataclass(frozen=True)
class LongPromptsFault:
    """Starts a second load generator whose prompts are long and whose answers are the usual ones."""

    name: str = "long-prompts"
    kind: FaultKind = FaultKind.DEMAND
    description: str = "a second load generator sends prompts four times as long"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def inject(self, context: FaultContext) -> Injection:
        """Measure what a request costs now, then add long ones."""
        now = measure(context)
        cores = interpolate(EXTRA_CORES, context.options.intensity)
        extra = now.rate_per_core * cores / _COST
        lengths = ":".join(map(str, PROMPT_TOKENS))
        process = send_more(context, self.name, extra, ("--prompt-tokens", lengths))
        return Injection(
            target=context.workload.service,
            parameters={
                "rate_before": round(now.rate, 2),
                "extra_rate": round(extra, 2),
                "prompt_tokens": list(PROMPT_TOKENS),
            },
            processes=(process,),
        )
