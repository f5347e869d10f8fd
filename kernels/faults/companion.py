"""A busy process group beside the workload, in a cgroup of its own: what neighbours and bystanders are made of."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from kernels.faults.base import FaultContext, FaultError, Injection
from kernels.supervisor.actions import KillCgroup, RemoveCgroup
from kernels.supervisor.cgroups import Cgroup, CpuQuota
from kernels.supervisor.mounts import discover
from kernels.supervisor.processes import spawn


@dataclass(frozen=True)
class Companion:
    """What the group is like; no quota and no `cpus` means as much as it gets, anywhere."""

    prefix: str
    processes: int = 1
    quota: CpuQuota | None = None
    weight: float = 1.0
    cpus: Sequence[int] = ()


def start(context: FaultContext, purpose: str, companion: Companion) -> Injection:
    """Make the cgroup beside the workload's, set it up, start the busy processes in it."""
    parent = PurePosixPath(context.workload.cgroup or "/tailcause/none").parent
    number = context.rng(purpose).randrange(100)
    cgroup = Cgroup(discover(), str(parent / f"{companion.prefix}-{number:02d}"))
    if cgroup.pids():
        raise FaultError(f"cgroup {cgroup.path} is in use: choose another --seed")
    directories = tuple(map(str, cgroup.directories))
    ancestors = tuple(map(str, cgroup.removable_ancestors()))
    context.reaper.add(RemoveCgroup(directories, ancestors))
    cgroup.create()
    context.reaper.add(KillCgroup(directories))
    if companion.quota is not None:
        cgroup.set_quota(companion.quota)
    if companion.weight != 1.0:
        cgroup.set_weight(companion.weight)
    command = [sys.executable, "-m", "kernels.faults.bystander", *map(str, companion.cpus)]
    processes = tuple(
        spawn(command, procs_files=cgroup.procs_files) for _ in range(companion.processes)
    )
    return Injection(
        target=cgroup.path,
        parameters={
            "processes": companion.processes,
            "pids": [process.pid for process in processes],
            "quota_us": companion.quota.quota_us if companion.quota else None,
            "weight": companion.weight,
            "cpus": list(companion.cpus),
        },
        processes=processes,
    )


def cpus_of_workload(context: FaultContext) -> set[int]:
    """Return the CPUs that the servers to hit may use."""
    try:
        return {cpu for one in context.servers() for cpu in os.sched_getaffinity(one.pid)}
    except ProcessLookupError as exc:
        raise FaultError("the workload's server is gone: start `tailcause-workload up`") from exc
