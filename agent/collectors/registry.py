"""The table of collectors: to add one, write its file and its line here."""

from collections.abc import Callable
from dataclasses import dataclass

from agent.collectors.base import Collector, CollectorContext
from agent.collectors.cgroup import CgroupCollector
from agent.collectors.cpu import CpuCollector
from agent.collectors.disk import DiskCollector
from agent.collectors.ebpf import EbpfCollector
from agent.collectors.gpu import GpuCollector
from agent.collectors.kube import KubeCollector
from agent.collectors.memory import MemoryCollector
from agent.collectors.network import NetworkCollector
from agent.collectors.process import ProcessCollector
from agent.collectors.psi import PsiCollector
from agent.collectors.servers import ServersCollector


@dataclass(frozen=True)
class Entry:
    """One signal: its name, what it is for, where it is read, the metrics it may emit.

    `beats` is how many intervals may pass before it is read without anybody asking: 1 where every reading counts,
    because something is integrated from one to the next. Counters are the same however often they are looked at.
    """

    name: str
    help: str
    source: str
    metrics: tuple[str, ...]
    build: Callable[[CollectorContext], Collector]
    beats: int = 30


COLLECTORS: tuple[Entry, ...] = (
    Entry(
        "cpu",
        "CPU time, clocks and load of the host",
        "/proc/stat, /proc/loadavg, cpufreq",
        CpuCollector.METRICS,
        CpuCollector,
    ),
    Entry(
        "memory",
        "memory, swap and page faults of the host",
        "/proc/meminfo, /proc/vmstat",
        MemoryCollector.METRICS,
        MemoryCollector,
    ),
    Entry(
        "disk",
        "bytes, requests and busy time of every disk",
        "/proc/diskstats",
        DiskCollector.METRICS,
        DiskCollector,
    ),
    Entry(
        "network",
        "bytes, packets, errors and drops of every network interface",
        "/proc/net/dev",
        NetworkCollector.METRICS,
        NetworkCollector,
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
        "CPU, throttling, memory, I/O and pressure of every cgroup",
        "cgroup v1 and v2 trees",
        CgroupCollector.METRICS,
        CgroupCollector,
    ),
    Entry(
        "process",
        "CPU, memory, faults and files of processes that send spans or use a GPU",
        "/proc/PID",
        ProcessCollector.METRICS,
        ProcessCollector,
    ),
    Entry(
        "gpu",
        "utilisation, memory, power, clocks, throttling and errors of every GPU",
        "NVML or a dcgm-exporter, /dev/kmsg",
        GpuCollector.METRICS,
        GpuCollector,
        beats=1,
    ),
    Entry(
        "ebpf",
        "run-queue delay of every cgroup, and who had the CPU meanwhile",
        "eBPF probes in the kernel",
        EbpfCollector.METRICS,
        EbpfCollector,
        beats=5,  # the governor goes by its readings
    ),
    Entry(
        "kube",
        "pods: phase, readiness, restarts, limits, and who uses which GPU",
        "the kubelet's /pods, its pod-resources socket, /proc/PID/fd",
        KubeCollector.METRICS,
        KubeCollector,
    ),
    Entry(
        "servers",
        "requests, caches and latencies of inference servers, as they tell them",
        "metrics pages of vLLM, SGLang, TensorRT-LLM, Triton, TGI, KServe",
        ServersCollector.METRICS,
        ServersCollector,
    ),
)
