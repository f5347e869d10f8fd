"""How the probes' readings are called in the catalogue: a reading's short name and labels, and what they stand for.

A reading that is not listed is counted as lost, by the reason `unknown_metric`.
"""

from collections.abc import Mapping

from agent.telemetry import names

METRIC_OF: Mapping[str, str] = {
    "runqueue.delay": "tailcause.runqueue.delay",
    "runqueue.throttled": "tailcause.runqueue.throttled_time",
    "runqueue.wait_on": "tailcause.runqueue.wait_on.time",
    "runqueue.involuntary_switches": "tailcause.runqueue.involuntary_switches",
    "blkio.queue": "tailcause.blkio.queue_time",
    "blkio.service": "tailcause.blkio.service_time",
    "tcp.rtt": "tailcause.tcp.rtt",
    "tcp.retransmits": "tailcause.tcp.retransmits",
    "tcp.peer.rtt": "tailcause.tcp.peer.rtt",
    "tcp.peer.retransmits": "tailcause.tcp.peer.retransmits",
    "mem.stall": "tailcause.memory.stall_time",
    "mem.major_faults": "tailcause.memory.major_faults",
    "mem.oom_kills": "tailcause.memory.oom_victims",
    "gpu.api.time": "tailcause.gpu.api.time",
    "gpu.launch.gap": "tailcause.gpu.launch.gap",
    "gpu.collective.time": "tailcause.gpu.collective.time",
}

ATTRIBUTE_OF: Mapping[str, str] = {
    "cgroup": names.CGROUP,
    "aggressor": names.AGGRESSOR,
    "device": names.DEVICE,
    "operation": names.DISK_OPERATION,
    "peer": names.PEER,
    "stall": names.STALL,
    "api": names.GPU_API,
    "kind": names.GPU_API_KIND,
    "pid": names.PROCESS_PID,
}
