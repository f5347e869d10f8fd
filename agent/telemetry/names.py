"""The catalogue: every metric the product emits and every attribute key it relies on.

Names follow the OpenTelemetry semantic conventions (v1.44) where one exists; the rest carry our
own prefix `tailcause.`. Units are UCUM.
"""

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """The instrument kinds we use."""

    COUNTER = "counter"
    GAUGE = "gauge"
    UP_DOWN = "updowncounter"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True):
    """One catalogue entry.

    `alias` is the Prometheus name that users already have dashboards for (cAdvisor, node_exporter,
    DCGM), exposed beside the name that follows from `name` and `unit`.
    """

    name: str
    unit: str
    kind: Kind
    description: str
    attributes: tuple[str, ...] = ()
    alias: str = ""


# -- attribute keys ---------------------------------------------------------------------------
SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"
SERVICE_INSTANCE_ID = "service.instance.id"
REVISION = "vcs.ref.head.revision"
PROCESS_PID = "process.pid"
HOST_NAME = "host.name"
CONTAINER_ID = "container.id"
POD_UID = "k8s.pod.uid"
CGROUP = "tailcause.cgroup.path"
"""Path of a cgroup below its hierarchy's mount point; joins spans and cgroup metrics."""

GEN_AI_OPERATION = "gen_ai.operation.name"
GEN_AI_PROVIDER = "gen_ai.provider.name"
GEN_AI_MODEL = "gen_ai.request.model"
GEN_AI_INPUT_TOKENS = "gen_ai.usage.input_tokens"
GEN_AI_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
GEN_AI_TTFT = "gen_ai.latency.time_to_first_token"
"""Span attribute, seconds; the name that vLLM uses."""

CPU_MODE = "cpu.mode"
MEMORY_STATE = "system.memory.state"
PSI_RESOURCE = "tailcause.psi.resource"
PSI_STALL = "tailcause.psi.stall"
SIGNAL = "tailcause.signal.name"
SIGNAL_STATE = "tailcause.signal.state"
REASON = "reason"
PIPE = "tailcause.pipe"
AGGRESSOR = "tailcause.aggressor.path"
"""Path of the cgroup that had the CPU; "idle" where nobody had it, "other" for a cgroup without a number."""
PROBE = "tailcause.probe.name"
PROBE_STATE = "tailcause.probe.state"
COST_KIND = "tailcause.probe.cost.kind"
"""`imposed` on whoever triggers the probe, or `own`: what reading it takes the agent."""
OUTCOME = "outcome"
DEVICE = "system.device"
DISK_OPERATION = "disk.io.direction"
PEER = "network.peer.address"
GPU_API = "tailcause.gpu.api"
GPU_API_KIND = "tailcause.gpu.api.kind"
STALL = "tailcause.memory.stall"
"""`reclaim` and `compaction` for a page, `limit` for room below the cgroup's own limit."""
HW_ID = "hw.id"
HW_NAME = "hw.name"
HW_TYPE = "hw.type"
HW_STATE = "hw.state"
GPU_TASK = "hw.gpu.task"

_GPU = (HW_ID, HW_NAME)
_CGROUP = (CGROUP, CONTAINER_ID)

# -- the ledger of a span: attributes, in seconds ---------------------------------------------
WAIT_PREFIX = "tailcause.wait."
WAIT_PARTS = (
    "cpu", "runqueue", "throttled", "disk", "network", "lock", "fault", "sleep", "gpu_sync",
)  # fmt: skip
"""What a thread can be doing. A part of a ledger that is not there was 0."""
WAIT_UNEXPLAINED = "tailcause.wait.unexplained"
"""The rest of the span's wall time; there on every span that has a ledger."""
WAIT_SCOPE = "tailcause.wait.scope"
"""Where a ledger comes from: `span` (its own thread), `steps` (the steps that it waited for), `process`."""
WAIT_THREAD = "tailcause.wait.thread"
"""Name of the thread whose waits these are, in scope `process`."""
WAIT_PARTIAL = "tailcause.wait.partial"
"""True where the ledger may hold others' waits or lack its own: moved between threads, or under an event loop."""

# -- metrics ----------------------------------------------------------------------------------
METRICS: tuple[Metric, ...] = (
    Metric("system.cpu.time", "s", Kind.COUNTER, "CPU time of the host by mode.", (CPU_MODE,)),
    Metric("system.cpu.logical.count", "{cpu}", Kind.UP_DOWN, "Logical CPUs online."),
    Metric("system.cpu.load_average.1m", "{thread}", Kind.GAUGE, "Load average over one minute."),
    Metric("system.memory.usage", "By", Kind.UP_DOWN, "Host memory by state.", (MEMORY_STATE,)),
    Metric("system.memory.limit", "By", Kind.UP_DOWN, "Host memory installed."),
    Metric("system.memory.available", "By", Kind.UP_DOWN, "Memory usable without swapping."),
    Metric("system.paging.faults.major", "{fault}", Kind.COUNTER, "Page faults that read a disk."),
    Metric(
        "tailcause.psi.time",
        "s",
        Kind.COUNTER,
        "Host pressure: wall time in which some (or all) runnable work stalled on a resource.",
        (PSI_RESOURCE, PSI_STALL),
    ),
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
    Metric(
        "hw.gpu.utilization", "1", Kind.GAUGE, "Share of time the GPU was busy.", (*_GPU, GPU_TASK)
    ),
    Metric("hw.gpu.memory.usage", "By", Kind.UP_DOWN, "GPU memory used.", _GPU),
    Metric("hw.gpu.memory.limit", "By", Kind.UP_DOWN, "GPU memory installed.", _GPU),
    Metric("hw.power", "W", Kind.GAUGE, "Power drawn.", (*_GPU, HW_TYPE)),
    Metric(
        "hw.energy", "J", Kind.COUNTER, "Energy used since the driver was loaded.", (*_GPU, HW_TYPE)
    ),
    Metric("hw.temperature", "Cel", Kind.GAUGE, "Temperature.", (*_GPU, HW_TYPE)),
    Metric(
        "tailcause.gpu.clock.deficit",
        "1",
        Kind.GAUGE,
        "How far the SM clock is below its maximum (0 = at the maximum).",
        _GPU,
    ),
    Metric(
        "tailcause.gpu.throttled_time",
        "s",
        Kind.COUNTER,
        "Integrated time the clocks were held down, by reason.",
        (*_GPU, REASON),
    ),
    Metric(
        "tailcause.signal.state",
        "1",
        Kind.GAUGE,
        "1 for the state that a signal source is in.",
        (SIGNAL, SIGNAL_STATE),
    ),
    Metric(
        "tailcause.signal.age",
        "s",
        Kind.GAUGE,
        "Age of the last value of a signal source.",
        (SIGNAL,),
    ),
    Metric(
        "tailcause.signal.collect.duration",
        "s",
        Kind.GAUGE,
        "How long the last collection took.",
        (SIGNAL,),
    ),
    Metric(
        "tailcause.signal.failures",
        "{failure}",
        Kind.COUNTER,
        "Collections that failed.",
        (SIGNAL,),
    ),
    Metric("process.cpu.time", "s", Kind.COUNTER, "CPU time of the agent itself.", (CPU_MODE,)),
    Metric("process.memory.usage", "By", Kind.UP_DOWN, "Resident memory of the agent itself."),
    Metric(
        "tailcause.pipe.items",
        "{item}",
        Kind.COUNTER,
        "Items (points or spans) that went through a pipe.",
        (PIPE,),
    ),
    Metric(
        "tailcause.pipe.dropped",
        "{item}",
        Kind.COUNTER,
        "Items lost in a pipe, by reason.",
        (PIPE, REASON),
    ),
    Metric(
        "tailcause.runqueue.delay",
        "s",
        Kind.HISTOGRAM,
        "Time that threads of a cgroup waited for a CPU, without the time they were throttled.",
        _CGROUP,
    ),
    Metric(
        "tailcause.runqueue.throttled_time",
        "s",
        Kind.COUNTER,
        "Time that threads of a cgroup could have run but for its quota, summed over threads.",
        _CGROUP,
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
        _CGROUP,
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
        _CGROUP,
    ),
    Metric(
        "tailcause.tcp.retransmits",
        "{segment}",
        Kind.COUNTER,
        "Segments that a cgroup's connections sent again.",
        _CGROUP,
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
        _CGROUP,
    ),
    Metric(
        "tailcause.memory.oom_victims",
        "{kill}",
        Kind.COUNTER,
        "Processes of a cgroup that the out-of-memory killer chose, whoever's limit it was.",
        _CGROUP,
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
        _CGROUP,
    ),
    Metric(
        "tailcause.gpu.collective.time",
        "s",
        Kind.HISTOGRAM,
        "Time that a process of a cgroup spent in an NCCL call.",
        (CGROUP, PROCESS_PID, GPU_API, GPU_API_KIND),
    ),
    Metric(
        "tailcause.probe.state",
        "1",
        Kind.GAUGE,
        "1 for the state that an eBPF probe is in.",
        (PROBE, PROBE_STATE),
    ),
    Metric(
        "tailcause.probe.cost",
        "s",
        Kind.COUNTER,
        "CPU time that a probe took, estimated from its events and their calibrated cost.",
        (PROBE, COST_KIND),
    ),
    Metric(
        "tailcause.probe.events",
        "{event}",
        Kind.COUNTER,
        "How often the programs of a probe ran.",
        (PROBE,),
    ),
    Metric(
        "tailcause.probe.dropped",
        "{event}",
        Kind.COUNTER,
        "What a probe could not count, by reason.",
        (PROBE, REASON),
    ),
    Metric(
        "tailcause.ledger.spans",
        "{span}",
        Kind.COUNTER,
        "Spans and what became of their latency ledger.",
        (OUTCOME,),
    ),
    Metric(
        "tailcause.governor.own_cpu",
        "1",
        Kind.GAUGE,
        "CPU that the agent uses, as a share of one core.",
    ),
    Metric(
        "tailcause.governor.imposed_cpu",
        "1",
        Kind.GAUGE,
        "CPU that the probes take from whoever triggers them, as a share of the CPU time in use.",
    ),
    Metric(
        "tailcause.governor.sheds",
        "{shed}",
        Kind.COUNTER,
        "How often a probe was taken off for its cost.",
        (PROBE,),
    ),
    Metric(
        "tailcause.enrich.misses",
        "{span}",
        Kind.COUNTER,
        "Spans whose process could not be joined to a cgroup.",
        (REASON,),
    ),
)

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
