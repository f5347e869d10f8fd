"""Metrics of cgroups: CPU, memory, pressure."""

from agent.telemetry.keys import CGROUP, CONTAINER_ID, PSI_RESOURCE, PSI_STALL
from agent.telemetry.metric import Kind, Metric

METRICS: tuple[Metric, ...] = (
    Metric(
        "container.cpu.time",
        "s",
        Kind.COUNTER,
        "CPU time used by a cgroup.",
        (CGROUP, CONTAINER_ID),
        alias="container_cpu_usage_seconds_total",
    ),
    Metric(
        "container.memory.usage",
        "By",
        Kind.UP_DOWN,
        "Memory charged to a cgroup.",
        (CGROUP, CONTAINER_ID),
        alias="container_memory_usage_bytes",
    ),
    Metric(
        "tailcause.cgroup.memory.limit",
        "By",
        Kind.UP_DOWN,
        "Memory limit of a cgroup; absent when unlimited.",
        (CGROUP, CONTAINER_ID),
        alias="container_spec_memory_limit_bytes",
    ),
    Metric(
        "tailcause.cgroup.memory.oom_kills",
        "{kill}",
        Kind.COUNTER,
        "Processes of a cgroup killed for memory.",
        (CGROUP, CONTAINER_ID),
        alias="container_oom_events_total",
    ),
    Metric(
        "tailcause.cgroup.cpu.limit",
        "{cpu}",
        Kind.GAUGE,
        "CFS quota over period; absent when unlimited.",
        (CGROUP, CONTAINER_ID),
    ),
    Metric(
        "tailcause.cgroup.cpu.cfs.periods",
        "{period}",
        Kind.COUNTER,
        "CFS enforcement periods that elapsed.",
        (CGROUP, CONTAINER_ID),
        alias="container_cpu_cfs_periods_total",
    ),
    Metric(
        "tailcause.cgroup.cpu.cfs.throttled_periods",
        "{period}",
        Kind.COUNTER,
        "CFS periods in which the cgroup ran out of quota.",
        (CGROUP, CONTAINER_ID),
        alias="container_cpu_cfs_throttled_periods_total",
    ),
    Metric(
        "tailcause.cgroup.cpu.cfs.throttled_time",
        "s",
        Kind.COUNTER,
        "Time the cgroup's run queues spent throttled, summed over CPUs.",
        (CGROUP, CONTAINER_ID),
        alias="container_cpu_cfs_throttled_seconds_total",
    ),
    Metric(
        "tailcause.cgroup.psi.time",
        "s",
        Kind.COUNTER,
        "Pressure of a cgroup: wall time in which some (or all) of its work stalled on a resource.",
        (CGROUP, CONTAINER_ID, PSI_RESOURCE, PSI_STALL),
    ),
)
