"""Decoy `decoy-throttled`: a neighbour that is throttled hard and harms nobody."""

from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultKind, Injection
from kernels.faults.companion import Companion, start
from kernels.supervisor.cgroups import CpuQuota

QUOTA_US = 4_000
"""4 % of a core: enough to be throttled in every period, too little to be felt."""


@dataclass(frozen=True)
class DecoyThrottled:
    """Runs a busy process beside the workload under a tiny quota."""

    name: str = "decoy-throttled"
    kind: FaultKind = FaultKind.DECOY
    description: str = "throttled bystander in a sibling cgroup, 4 % of a core (needs root)"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def inject(self, context: FaultContext) -> Injection:
        """Make the cgroup, set its quota, start the process in it."""
        return start(context, self.name, Companion("batch", quota=CpuQuota(QUOTA_US)))
