"""Metrics of the host as a whole."""

from agent.telemetry.keys import (
    CPU_MODE,
    CPU_NUMBER,
    DEVICE,
    DISK_OPERATION,
    FAULT_TYPE,
    INTERFACE,
    IO_DIRECTION,
    MEMORY_STATE,
    PAGING_DIRECTION,
    PAGING_STATE,
    PSI_RESOURCE,
    PSI_STALL,
)
from agent.telemetry.metric import Alias, Kind, Metric

DISK = (DEVICE, DISK_OPERATION)
LINK = (INTERFACE, IO_DIRECTION)


def _disk(read: str, write: str) -> tuple[Alias, ...]:
    """Return node_exporter's names of the two directions."""
    both = (("read", read), ("write", write))
    return tuple(
        Alias(f"node_disk_{name}_total", ((DISK_OPERATION, way),), ((DEVICE, "device"),))
        for way, name in both
    )


def _link(what: str) -> tuple[Alias, ...]:
    """Return node_exporter's names of the two directions."""
    return tuple(
        Alias(f"node_network_{way}_{what}_total", ((IO_DIRECTION, way),), ((INTERFACE, "device"),))
        for way in ("receive", "transmit")
    )


METRICS: tuple[Metric, ...] = (
    Metric("system.cpu.time", "s", Kind.COUNTER, "CPU time of the host by mode.", (CPU_MODE,)),
    Metric(
        "system.cpu.utilization",
        "1",
        Kind.GAUGE,
        "Share of the CPU time since the collection before, by mode; steal is what a hypervisor took.",
        (CPU_MODE,),
    ),
    Metric(
        "system.cpu.frequency",
        "Hz",
        Kind.GAUGE,
        "Present clock of a CPU.",
        (CPU_NUMBER,),
        aliases=(Alias("node_cpu_scaling_frequency_hertz", labels=((CPU_NUMBER, "cpu"),)),),
    ),
    Metric("system.cpu.logical.count", "{cpu}", Kind.UP_DOWN, "Logical CPUs online."),
    Metric(
        "system.cpu.load_average.1m",
        "{thread}",
        Kind.GAUGE,
        "Load average over one minute.",
        alias="node_load1",
    ),
    Metric(
        "system.memory.usage",
        "By",
        Kind.UP_DOWN,
        "Host memory by state.",
        (MEMORY_STATE,),
        aliases=(
            Alias("node_memory_MemFree_bytes", ((MEMORY_STATE, "free"),)),
            Alias("node_memory_Buffers_bytes", ((MEMORY_STATE, "buffers"),)),
        ),
    ),
    Metric(
        "system.memory.limit",
        "By",
        Kind.UP_DOWN,
        "Host memory installed.",
        alias="node_memory_MemTotal_bytes",
    ),
    Metric(
        "system.memory.linux.available",
        "By",
        Kind.UP_DOWN,
        "Memory usable without swapping.",
        alias="node_memory_MemAvailable_bytes",
    ),
    Metric(
        "system.paging.usage",
        "By",
        Kind.UP_DOWN,
        "Swap space by state; absent without swap.",
        (PAGING_STATE,),
        aliases=(Alias("node_memory_SwapFree_bytes", ((PAGING_STATE, "free"),)),),
    ),
    Metric(
        "system.paging.faults",
        "{fault}",
        Kind.COUNTER,
        "Page faults; major ones read a disk.",
        (FAULT_TYPE,),
    ),
    Metric(
        "system.paging.operations",
        "{operation}",
        Kind.COUNTER,
        "Pages swapped in and out.",
        (PAGING_DIRECTION,),
    ),
    Metric(
        "system.disk.io",
        "By",
        Kind.COUNTER,
        "Bytes read from and written to a disk.",
        DISK,
        aliases=_disk("read_bytes", "written_bytes"),
    ),
    Metric(
        "system.disk.operations",
        "{operation}",
        Kind.COUNTER,
        "Requests that a disk has completed.",
        DISK,
        aliases=_disk("reads_completed", "writes_completed"),
    ),
    Metric(
        "system.disk.merged",
        "{operation}",
        Kind.COUNTER,
        "Requests merged into another before they went to a disk.",
        DISK,
        aliases=_disk("reads_merged", "writes_merged"),
    ),
    Metric(
        "system.disk.operation_time",
        "s",
        Kind.COUNTER,
        "Time that requests took, summed over requests.",
        DISK,
        aliases=_disk("read_time_seconds", "write_time_seconds"),
    ),
    Metric(
        "system.disk.io_time",
        "s",
        Kind.COUNTER,
        "Time in which a disk had something to do.",
        (DEVICE,),
        aliases=(Alias("node_disk_io_time_seconds_total", labels=((DEVICE, "device"),)),),
    ),
    Metric(
        "system.network.io",
        "By",
        Kind.COUNTER,
        "Bytes through a network interface.",
        LINK,
        aliases=_link("bytes"),
    ),
    Metric(
        "system.network.packet.count",
        "{packet}",
        Kind.COUNTER,
        "Packets through a network interface.",
        LINK,
        aliases=_link("packets"),
    ),
    Metric(
        "system.network.errors",
        "{error}",
        Kind.COUNTER,
        "Errors of a network interface.",
        LINK,
        aliases=_link("errs"),
    ),
    Metric(
        "system.network.packet.dropped",
        "{packet}",
        Kind.COUNTER,
        "Packets that a network interface dropped without an error.",
        LINK,
        aliases=_link("drop"),
    ),
    Metric(
        "tailcause.psi.time",
        "s",
        Kind.COUNTER,
        "Host pressure: wall time in which some (or all) runnable work stalled on a resource.",
        (PSI_RESOURCE, PSI_STALL),
        aliases=tuple(
            Alias(
                f"node_pressure_{resource}_{name}_seconds_total",
                ((PSI_RESOURCE, resource), (PSI_STALL, stall)),
            )
            for resource in ("cpu", "memory", "io")
            for stall, name in (("some", "waiting"), ("full", "stalled"))
        ),
    ),
)
