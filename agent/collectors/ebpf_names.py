"""How the probes' readings are called in the catalogue: a reading's short name and labels, and what they stand for.

A reading that is not listed is counted as lost, by the reason `unknown_metric`.
"""

from collections.abc import Mapping

from agent.telemetry import keys

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
    "cgroup": keys.CGROUP,
    "aggressor": keys.AGGRESSOR,
    "device": keys.DEVICE,
    "operation": keys.DISK_OPERATION,
    "peer": keys.PEER,
    "stall": keys.STALL,
    "api": keys.GPU_API,
    "kind": keys.GPU_API_KIND,
    "pid": keys.PROCESS_PID,
}
