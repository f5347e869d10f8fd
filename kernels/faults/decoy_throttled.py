"""Decoy `decoy-throttled`: a neighbour that is throttled hard and harms nobody."""

import sys
from dataclasses import dataclass
from pathlib import PurePosixPath

from kernels.faults.base import FaultContext, FaultError, FaultKind, Injection
from kernels.supervisor.actions import KillCgroup, RemoveCgroup
from kernels.supervisor.cgroups import PERIOD_US, Cgroup, CpuQuota
from kernels.supervisor.mounts import discover
from kernels.supervisor.processes import spawn

QUOTA_US = 4_000
"""4 % of a core: enough to be throttled in every period, too little to be felt."""


@dataclass(frozen=True)
class DecoyThrottled:
    """Runs a busy process beside the workload under a tiny quota."""

    name: str = "decoy-throttled"
    kind: FaultKind = FaultKind.DECOY
    description: str = "throttled bystander in a sibling cgroup, 4 % of a core (needs root)"
    variants: tuple[str, ...] = ()

    def inject(self, context: FaultContext) -> Injection:
        """Make the cgroup, set its quota, start the process in it."""
        parent = PurePosixPath(context.workload.cgroup or "/tailcause/none").parent
        number = context.rng(self.name).randrange(100)
        cgroup = Cgroup(discover(), str(parent / f"batch-{number:02d}"))
        if cgroup.pids():
            raise FaultError(f"cgroup {cgroup.path} is in use: choose another --seed")
        directories = tuple(map(str, cgroup.directories))
        ancestors = tuple(map(str, cgroup.removable_ancestors()))
        context.reaper.add(RemoveCgroup(directories, ancestors))
        cgroup.create()
        context.reaper.add(KillCgroup(directories))
        cgroup.set_quota(CpuQuota(QUOTA_US))
        process = spawn(
            [sys.executable, "-m", "kernels.faults.bystander"], procs_files=cgroup.procs_files
        )
        return Injection(
            target=cgroup.path,
            parameters={"quota_us": QUOTA_US, "period_us": PERIOD_US, "pid": process.pid},
            processes=(process,),
        )
