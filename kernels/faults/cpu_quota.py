"""Fault `cpu-quota`: the CPU limit of the server's cgroup is too low for its load."""

import time
from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultError, FaultKind, Injection, interpolate
from kernels.supervisor.actions import WriteFile
from kernels.supervisor.cgroups import MIN_QUOTA_US, PERIOD_US, Cgroup, CpuQuota

MEASURE_S = 5.0
_IDLE_CORES = 0.02

HEADROOM = ((1.5, 1.3), (3.0, 1.04), (6.0, 0.88))
"""(P99 factor, quota as a multiple of the CPU time in use before), measured at 20 requests/s.

Under pressure batches grow, and with them the work done per CPU second: that is why the server
lives with a little less than it used, slowly. From about 0.8 on its queue fills up.
"""


@dataclass(frozen=True)
class CpuQuotaFault:
    """Sets a CFS quota near the CPU time that the server needs on average.

    The need comes in bursts, and each burst past the quota stops the whole server until the next
    period begins; on average there is enough, so that the queue does not grow for ever.
    """

    name: str = "cpu-quota"
    kind: FaultKind = FaultKind.FAULT
    description: str = "CFS quota on the server's cgroup, near its average use (needs root)"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def inject(self, context: FaultContext) -> Injection:
        """Measure the server's CPU use, then set the quota."""
        cgroup = context.workload_cgroup()
        cores = measure_cores(cgroup, context)
        if cores < _IDLE_CORES:
            raise FaultError("the workload is idle: start `tailcause-workload load` first")
        headroom = interpolate(HEADROOM, context.options.intensity)
        quota_us = max(MIN_QUOTA_US, round(cores * headroom * PERIOD_US))
        for file, value in reversed(cgroup.quota_writes(cgroup.quota())):
            context.reaper.add(WriteFile(str(file), value))
        before = cgroup.cpu_stat()
        cgroup.set_quota(CpuQuota(quota_us))
        return Injection(
            target=cgroup.path,
            parameters={
                "quota_us": quota_us,
                "period_us": PERIOD_US,
                "cores_in_use": round(cores, 4),
                "throttled_s_before": before.throttled_s,
            },
        )


def measure_cores(cgroup: Cgroup, context: FaultContext) -> float:
    """CPU seconds per second that a cgroup uses, over a few seconds."""
    started, used = time.monotonic(), cgroup.cpu_usage_s()
    context.pause(MEASURE_S)
    return (cgroup.cpu_usage_s() - used) / (time.monotonic() - started)
