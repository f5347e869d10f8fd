"""Decoy `decoy-neighbour`: a busy neighbour on a core that the server does not use."""

import os
from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultError, FaultKind, Injection
from kernels.faults.companion import Companion, cpus_of_workload, start
from kernels.supervisor.cgroups import CpuQuota

QUOTA_US = 50_000
"""Half a core: seen by every dashboard, and the clients that share the core still get theirs."""


@dataclass(frozen=True)
class DecoyNeighbour:
    """Runs a busy process on another core; the server never waits behind it."""

    name: str = "decoy-neighbour"
    kind: FaultKind = FaultKind.DECOY
    description: str = "busy neighbour on a core that the server does not use (needs root)"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def inject(self, context: FaultContext) -> Injection:
        """Start it on the first core that is not the server's."""
        others = sorted(os.sched_getaffinity(0) - cpus_of_workload(context))
        if not others:
            raise FaultError("no core is left beside the server's: start `up` with --cpus")
        companion = Companion("cron", quota=CpuQuota(QUOTA_US), cpus=others[:1])
        return start(context, self.name, companion)
