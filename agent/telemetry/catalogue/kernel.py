"""Metrics of the eBPF probes."""

from agent.telemetry.keys import (
    AGGRESSOR,
    CGROUP,
    CONTAINER_ID,
    DEVICE,
    DISK_OPERATION,
    GPU_API,
    GPU_API_KIND,
    PEER,
    PROCESS_PID,
    STALL,
)
from agent.telemetry.metric import Kind, Metric

CGROUP_KEYS = (CGROUP, CONTAINER_ID)

METRICS: tuple[Metric, ...] = (
    Metric(
        "tailcause.runqueue.delay",
        "s",
        Kind.HISTOGRAM,
        "Time that threads of a cgroup waited for a CPU, without the time they were throttled.",
        CGROUP_KEYS,
    ),
    Metric(
        "tailcause.runqueue.throttled_time",
        "s",
        Kind.COUNTER,
        "Time that threads of a cgroup could have run but for its quota, summed over threads.",
        CGROUP_KEYS,
    ),
    Metric(
        "tailcause.runqueue.wait_on.time",
        "s",
        Kind.COUNTER,
        "Time that threads of a cgroup waited for a CPU that another cgroup had.",
        (CGROUP, AGGRESSOR),
    ),
    Metric(
        "tailcause.runqueue.involuntary_switches",
        "{switch}",
        Kind.COUNTER,
        "Switches away from threads of a cgroup that could have gone on.",
        CGROUP_KEYS,
    ),
    Metric(
        "tailcause.blkio.queue_time",
        "s",
        Kind.HISTOGRAM,
        "Time that requests of a cgroup waited before they were given to the device.",
        (CGROUP, DEVICE, DISK_OPERATION),
    ),
    Metric(
        "tailcause.blkio.service_time",
        "s",
        Kind.HISTOGRAM,
        "Time that the device took for requests of a cgroup.",
        (CGROUP, DEVICE, DISK_OPERATION),
    ),
    Metric(
        "tailcause.tcp.rtt",
        "s",
        Kind.HISTOGRAM,
        "Smoothed round-trip time of a cgroup's connections, sampled.",
        CGROUP_KEYS,
    ),
    Metric(
        "tailcause.tcp.retransmits",
        "{segment}",
        Kind.COUNTER,
        "Segments that a cgroup's connections sent again.",
        CGROUP_KEYS,
    ),
    Metric(
        "tailcause.tcp.peer.rtt",
        "s",
        Kind.HISTOGRAM,
        "Smoothed round-trip time of a cgroup's connections to one peer, sampled.",
        (CGROUP, PEER),
    ),
    Metric(
        "tailcause.tcp.peer.retransmits",
        "{segment}",
        Kind.COUNTER,
        "Segments that a cgroup sent again to one peer.",
        (CGROUP, PEER),
    ),
    Metric(
        "tailcause.memory.stall_time",
        "s",
        Kind.HISTOGRAM,
        "Time that threads of a cgroup spent making room in memory themselves, stall by stall.",
        (CGROUP, STALL),
    ),
    Metric(
        "tailcause.memory.major_faults",
        "{fault}",
        Kind.COUNTER,
        "Page faults of a cgroup that read a disk.",
        CGROUP_KEYS,
    ),
    Metric(
        "tailcause.memory.oom_victims",
        "{kill}",
        Kind.COUNTER,
        "Processes of a cgroup that the out-of-memory killer chose, whoever's limit it was.",
        CGROUP_KEYS,
    ),
    Metric(
        "tailcause.gpu.api.time",
        "s",
        Kind.HISTOGRAM,
        "Time that threads of a cgroup spent in a CUDA call: of a launch, the time to enqueue it.",
        (CGROUP, GPU_API, GPU_API_KIND),
    ),
    Metric(
        "tailcause.gpu.launch.gap",
        "s",
        Kind.HISTOGRAM,
        "Time between two launches of a thread of a cgroup.",
        CGROUP_KEYS,
    ),
    Metric(
        "tailcause.gpu.collective.time",
        "s",
        Kind.HISTOGRAM,
        "Time that a process of a cgroup spent in an NCCL call.",
        (CGROUP, PROCESS_PID, GPU_API, GPU_API_KIND),
    ),
)
