"""The table of collectors: to add one, write its file and its line here."""

from collections.abc import Callable
from dataclasses import dataclass

from agent.collectors.base import Collector, CollectorContext
from agent.collectors.cgroup import CgroupCollector
from agent.collectors.cpu import CpuCollector
from agent.collectors.ebpf import EbpfCollector
from agent.collectors.gpu import GpuCollector
from agent.collectors.kube import KubeCollector
from agent.collectors.memory import MemoryCollector
from agent.collectors.psi import PsiCollector


@dataclass(frozen=True)
class Entry:
    """One signal: its name, what it is for, where it is read, the metrics it may emit."""

    name: str
    help: str
    source: str
    metrics: tuple[str, ...]
    build: Callable[[CollectorContext], Collector]


COLLECTORS: tuple[Entry, ...] = (
    Entry(
        "cpu",
        "CPU time and load of the host",
        "/proc/stat, /proc/loadavg",
        CpuCollector.METRICS,
        CpuCollector,
    ),
    Entry(
        "memory",
        "memory and major page faults of the host",
        "/proc/meminfo, /proc/vmstat",
        MemoryCollector.METRICS,
        MemoryCollector,
    ),
    Entry(
        "psi",
        "pressure: time in which work of the host stalled",
        "/proc/pressure",
        PsiCollector.METRICS,
        PsiCollector,
    ),
    Entry(
        "cgroup",
        "CPU, throttling, memory and pressure of every cgroup",
        "cgroup v1 and v2 trees",
        CgroupCollector.METRICS,
        CgroupCollector,
    ),
    Entry(
        "gpu",
        "utilisation, memory, power, clocks and throttling of every GPU",
        "NVML",
        GpuCollector.METRICS,
        GpuCollector,
    ),
    Entry(
        "ebpf",
        "run-queue delay of every cgroup, and who had the CPU meanwhile",
        "eBPF probes in the kernel",
        EbpfCollector.METRICS,
        EbpfCollector,
    ),
    Entry(
        "kube",
        "pods: phase, readiness, restarts, limits, and who uses which GPU",
        "the kubelet's /pods, its pod-resources socket, /proc/PID/fd",
        KubeCollector.METRICS,
        KubeCollector,
    ),
)
