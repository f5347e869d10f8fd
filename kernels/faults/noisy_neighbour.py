"""Fault `noisy-neighbour`: busy processes of another cgroup on the server's own cores."""

from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultKind, Injection, interpolate
from kernels.faults.companion import Companion, cpus_of_workload, start

PER_CPU = 3
WEIGHT = ((1.5, 0.5), (3.0, 1.0), (6.0, 1.6))
"""(P99 factor, CPU weight of the neighbour against the server's), at 20 requests/s on one core."""


@dataclass(frozen=True)
class NoisyNeighbour:
    """Runs busy processes, with a weight of their own, on the CPUs that the server may use."""

    name: str = "noisy-neighbour"
    kind: FaultKind = FaultKind.FAULT
    description: str = "busy processes of another cgroup on the server's cores (needs root)"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def inject(self, context: FaultContext) -> Injection:
        """Start the neighbour."""
        context.workload_cgroup()
        cpus = sorted(cpus_of_workload(context))
        weight = interpolate(WEIGHT, context.options.intensity)
        companion = Companion("report", PER_CPU * len(cpus), weight=weight, cpus=cpus)
        return start(context, self.name, companion)
