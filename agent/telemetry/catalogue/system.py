"""Metrics of the host as a whole."""

from agent.telemetry.keys import CPU_MODE, MEMORY_STATE, PSI_RESOURCE, PSI_STALL
from agent.telemetry.metric import Kind, Metric

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
)
