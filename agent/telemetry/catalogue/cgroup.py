"""Metrics of cgroups: CPU, memory, pressure, I/O, threads."""

from agent.telemetry.keys import (
    CGROUP,
    CONTAINER_ID,
    CONTAINER_NAME,
    CPU_MODE,
    DEVICE,
    DISK_OPERATION,
    FAULT_TYPE,
    MEMORY_EVENT,
    NAMESPACE,
    PAGE_TYPE,
    POD_NAME,
    PSI_RESOURCE,
    PSI_STALL,
)
from agent.telemetry.metric import Alias, Kind, Metric

KEYS = (CGROUP, CONTAINER_ID)
ID = (CGROUP, "id")
"""cAdvisor's label for the path of a cgroup."""
POD_LABELS = ((POD_NAME, "pod"), (NAMESPACE, "namespace"), (CONTAINER_NAME, "container"))
IO_LABELS = (ID, *POD_LABELS, (DEVICE, "device"))


def _io(reads: str, writes: str) -> tuple[Alias, ...]:
    """Return cAdvisor's names of the two directions."""
    return (
        Alias(f"container_fs_{reads}_total", ((DISK_OPERATION, "read"),), IO_LABELS),
        Alias(f"container_fs_{writes}_total", ((DISK_OPERATION, "write"),), IO_LABELS),
    )


METRICS: tuple[Metric, ...] = (
    Metric(
        "container.cpu.time",
        "s",
        Kind.COUNTER,
        "CPU time used by a cgroup.",
        KEYS,
        alias="container_cpu_usage_seconds_total",
    ),
    Metric(
        "tailcause.cgroup.cpu.mode_time",
        "s",
        Kind.COUNTER,
        "CPU time used by a cgroup in user and in kernel mode.",
        (*KEYS, CPU_MODE),
        aliases=tuple(
            Alias(f"container_cpu_{mode}_seconds_total", ((CPU_MODE, mode),), (ID, *POD_LABELS))
            for mode in ("user", "system")
        ),
    ),
    Metric(
        "tailcause.cgroup.cpu.weight",
        "1",
        Kind.UP_DOWN,
        "Weight of a cgroup among its siblings, 100 by default; v1's shares in the same measure.",
        KEYS,
    ),
    Metric(
        "tailcause.cgroup.cpu.limit",
        "{cpu}",
        Kind.GAUGE,
        "CFS quota over period; absent when unlimited.",
        KEYS,
    ),
    Metric(
        "tailcause.cgroup.cpu.cfs.periods",
        "{period}",
        Kind.COUNTER,
        "CFS enforcement periods that elapsed.",
        KEYS,
        alias="container_cpu_cfs_periods_total",
    ),
    Metric(
        "tailcause.cgroup.cpu.cfs.throttled_periods",
        "{period}",
        Kind.COUNTER,
        "CFS periods in which the cgroup ran out of quota.",
        KEYS,
        alias="container_cpu_cfs_throttled_periods_total",
    ),
    Metric(
        "tailcause.cgroup.cpu.cfs.throttled_time",
        "s",
        Kind.COUNTER,
        "Time the cgroup's run queues spent throttled, summed over CPUs.",
        KEYS,
        alias="container_cpu_cfs_throttled_seconds_total",
    ),
    Metric(
        "container.memory.usage",
        "By",
        Kind.UP_DOWN,
        "Memory charged to a cgroup.",
        KEYS,
        alias="container_memory_usage_bytes",
    ),
    Metric(
        "container.memory.rss",
        "By",
        Kind.UP_DOWN,
        "Anonymous memory of a cgroup.",
        KEYS,
        alias="container_memory_rss",
    ),
    Metric(
        "container.memory.working_set",
        "By",
        Kind.UP_DOWN,
        "Memory of a cgroup without the file pages that were not used lately: what the kubelet evicts by.",
        KEYS,
        alias="container_memory_working_set_bytes",
    ),
    Metric(
        "tailcause.cgroup.memory.cache",
        "By",
        Kind.UP_DOWN,
        "File pages charged to a cgroup, shared memory among them.",
        KEYS,
        alias="container_memory_cache",
    ),
    Metric(
        "tailcause.cgroup.memory.swap",
        "By",
        Kind.UP_DOWN,
        "Swap space that a cgroup uses.",
        KEYS,
        alias="container_memory_swap",
    ),
    Metric(
        "tailcause.cgroup.memory.limit",
        "By",
        Kind.UP_DOWN,
        "Memory limit of a cgroup; absent when unlimited.",
        KEYS,
        alias="container_spec_memory_limit_bytes",
    ),
    Metric(
        "tailcause.cgroup.memory.high",
        "By",
        Kind.UP_DOWN,
        "Memory above which a cgroup is slowed down (v2); absent when unlimited.",
        KEYS,
    ),
    Metric(
        "tailcause.cgroup.memory.oom_kills",
        "{kill}",
        Kind.COUNTER,
        "Processes of a cgroup killed for memory.",
        KEYS,
        alias="container_oom_events_total",
    ),
    Metric(
        "tailcause.cgroup.memory.events",
        "{event}",
        Kind.COUNTER,
        "How often a cgroup met a limit or a protection of its memory; `max` is v1's failcnt.",
        (*KEYS, MEMORY_EVENT),
        aliases=(Alias("container_memory_failcnt", ((MEMORY_EVENT, "max"),), (ID, *POD_LABELS)),),
    ),
    Metric(
        "tailcause.cgroup.memory.refaults",
        "{page}",
        Kind.COUNTER,
        "Pages that came back soon after they were reclaimed: memory is too small for what is in use.",
        (*KEYS, PAGE_TYPE),
    ),
    Metric(
        "tailcause.cgroup.memory.scanned",
        "{page}",
        Kind.COUNTER,
        "Pages of a cgroup that were looked at for reclaim (v2).",
        KEYS,
    ),
    Metric(
        "tailcause.cgroup.memory.reclaimed",
        "{page}",
        Kind.COUNTER,
        "Pages of a cgroup that were reclaimed (v2).",
        KEYS,
    ),
    Metric(
        "container.paging.faults",
        "{fault}",
        Kind.COUNTER,
        "Page faults of a cgroup; major ones read a disk.",
        (*KEYS, FAULT_TYPE),
    ),
    Metric(
        "container.disk.io",
        "By",
        Kind.COUNTER,
        "Bytes that a cgroup read from and wrote to a disk.",
        (*KEYS, DEVICE, DISK_OPERATION),
        aliases=_io("reads_bytes", "writes_bytes"),
    ),
    Metric(
        "tailcause.cgroup.io.operations",
        "{operation}",
        Kind.COUNTER,
        "Requests of a cgroup to a disk.",
        (*KEYS, DEVICE, DISK_OPERATION),
        aliases=_io("reads", "writes"),
    ),
    Metric(
        "tailcause.cgroup.io.throttled_time",
        "s",
        Kind.COUNTER,
        "Time that requests of a cgroup waited for its share of a disk; absent without io.cost (v2).",
        (*KEYS, DEVICE),
    ),
    Metric(
        "tailcause.cgroup.threads",
        "{thread}",
        Kind.UP_DOWN,
        "Threads of a cgroup.",
        KEYS,
        alias="container_threads",
    ),
    Metric(
        "tailcause.cgroup.threads.limit",
        "{thread}",
        Kind.UP_DOWN,
        "Threads that a cgroup may have; absent when unlimited.",
        KEYS,
        alias="container_threads_max",
    ),
    Metric(
        "tailcause.cgroup.threads.refused",
        "{event}",
        Kind.COUNTER,
        "Forks that failed for the limit on threads.",
        KEYS,
    ),
    Metric(
        "container.uptime",
        "s",
        Kind.GAUGE,
        "Age of the oldest process of a container.",
        KEYS,
    ),
    Metric(
        "tailcause.cgroup.psi.time",
        "s",
        Kind.COUNTER,
        "Pressure of a cgroup: wall time in which some (or all) of its work stalled on a resource.",
        (*KEYS, PSI_RESOURCE, PSI_STALL),
        aliases=tuple(
            Alias(
                f"container_pressure_{resource}_{name}_seconds_total",
                ((PSI_RESOURCE, resource), (PSI_STALL, stall)),
                (ID, *POD_LABELS),
            )
            for resource in ("cpu", "memory", "io")
            for stall, name in (("some", "waiting"), ("full", "stalled"))
        ),
    ),
)
