"""Metrics of processes: the agent's own carry no attributes, those that are watched their pid and cgroup."""

from agent.telemetry.keys import (
    CGROUP,
    CONTAINER_ID,
    CPU_MODE,
    DISK_OPERATION,
    EXECUTABLE,
    FAULT_TYPE,
    PROCESS_PID,
    SWITCH_TYPE,
)
from agent.telemetry.metric import Kind, Metric

WHO = (PROCESS_PID, EXECUTABLE, CGROUP, CONTAINER_ID)

METRICS: tuple[Metric, ...] = (
    Metric(
        "process.cpu.time",
        "s",
        Kind.COUNTER,
        "CPU time of a process by mode; without a pid: of the agent itself.",
        (*WHO, CPU_MODE),
    ),
    Metric(
        "process.memory.usage",
        "By",
        Kind.UP_DOWN,
        "Resident memory of a process; without a pid: of the agent itself.",
        WHO,
    ),
    Metric("process.memory.virtual", "By", Kind.UP_DOWN, "Address space of a process.", WHO),
    Metric("process.thread.count", "{thread}", Kind.UP_DOWN, "Threads of a process.", WHO),
    Metric(
        "process.unix.file_descriptor.count",
        "{file_descriptor}",
        Kind.UP_DOWN,
        "Files that a process has open.",
        WHO,
    ),
    Metric(
        "process.paging.faults",
        "{fault}",
        Kind.COUNTER,
        "Page faults of a process; major ones read a disk.",
        (*WHO, FAULT_TYPE),
    ),
    Metric(
        "process.context_switches",
        "{context_switch}",
        Kind.COUNTER,
        "Switches away from the threads of a process, since it is watched.",
        (*WHO, SWITCH_TYPE),
    ),
    Metric(
        "process.disk.io",
        "By",
        Kind.COUNTER,
        "Bytes that a process caused to be read from and written to disks.",
        (*WHO, DISK_OPERATION),
    ),
)
