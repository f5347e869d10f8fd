"""Configuration: all that can be set, and what the parts of the agent make of it."""

import socket
from pathlib import Path

import msgspec

from agent.cardinality import MAX_SERIES
from agent.forwarding import SPOOL_BYTES, Forwarding
from agent.gpu.settings import GpuSettings
from agent.host.cgroup_walk import WalkLimits
from agent.host.paths import DEFAULT_CGROUP, DEFAULT_PROCFS, HostPaths
from agent.host.selection import DISK_EXCLUDE, EVERYTHING, NETWORK_EXCLUDE, Selection
from agent.kube.settings import KubeletAccess, KubeSettings
from agent.probelist import ProbeSettings
from agent.servers.settings import ServerSettings, parse_targets
from agent.state import spool_dir

EXPORT_OFF = "off"
GRPC_OFF = "off"
GRPC_PORT = 4317


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that can be set; the names are those of the flags with `_` for `-` and `.`."""

    listen: str = "127.0.0.1"
    otlp_port: int = 4318
    otlp_grpc_port: str = ""
    """A port or `off`; by default 4317, or any free one where `otlp_port` is 0."""
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    bearer_token_file: str = ""
    redact: bool = True
    sample_rest: float = 1.0
    """Of the traces that are neither slow nor failed; 1 keeps every trace."""
    sample_wait: float = 5.0
    metrics_port: int = 9464
    forward: str = ""
    export: str = ""
    compression: str = ""
    headers: dict[str, str] = {}
    """What is sent along to `forward`; the values are secrets."""
    forward_ca: str = ""
    forward_cert: str = ""
    forward_key: str = ""
    forward_token_file: str = ""
    spool_dir: str = ""
    """By default in the state folder."""
    spool_bytes: int = SPOOL_BYTES
    """Of the disk, for what cannot be sent; 0: none."""
    max_series: int = MAX_SERIES
    """Of one metric."""
    kernel_log: bool = True
    interval: float = 1.0
    export_interval: float = 15.0
    deadline: float = 5.0
    disable: tuple[str, ...] = ()
    host_name: str = ""
    path_procfs: str = str(DEFAULT_PROCFS)
    path_cgroup: str = str(DEFAULT_CGROUP)
    cgroup_depth: int = 16
    cgroup_count: int = 1000
    cgroup_match: tuple[str, ...] = EVERYTHING
    disk_exclude: tuple[str, ...] = DISK_EXCLUDE
    network_exclude: tuple[str, ...] = NETWORK_EXCLUDE
    process_names: tuple[str, ...] = ()
    log_level: str = "info"
    unprivileged: bool = False
    """No probes, no capabilities: what a cluster that forbids privileged pods lets through."""
    gpu_library: str = ""
    """Path of libnvidia-ml.so.1; by default the usual places."""
    gpu_dcgm: str = ""
    """URL of a dcgm-exporter, or `off`; by default port 9400 of this host is looked at."""
    ebpf_enabled: bool = True
    ebpf_probes: tuple[str, ...] = ()
    ebpf_cuda: bool = False
    ebpf_watch: tuple[int, ...] = ()
    ebpf_serving: tuple[str, ...] = ()
    ebpf_own_budget: float = 0.03
    ebpf_imposed_budget: float = 0.01
    ebpf_memory_budget: float = 96.0
    kubelet: str = ""
    kube_token_file: str = ""
    kube_ca_file: str = ""
    kube_insecure: bool = False
    kube_labels: tuple[str, ...] = ()
    kube_pod_resources: str = ""
    """A socket or `off`; by default the kubelet's usual one, where a kubelet is named."""
    servers: tuple[str, ...] = ()
    """Metrics pages of inference servers, `vllm@http://127.0.0.1:8000/metrics` or without the kind."""
    servers_discover: bool = False
    servers_interval: float = 5.0
    servers_slow: tuple[float, ...] = ()
    """Seconds above which a request counts as slow; by default several for each kind of latency."""

    @property
    def metrics_url(self) -> str:
        """Return where metrics are pushed: like the spans, unless `export` says otherwise."""
        return "" if self.export == EXPORT_OFF else self.export or self.forward

    @property
    def forwarding(self) -> Forwarding:
        """Return what is said of the way out."""
        return Forwarding(
            self.forward,
            self.metrics_url,
            self.compression,
            self.headers,
            self.forward_ca,
            self.forward_cert,
            self.forward_key,
            self.forward_token_file,
            self.spool_dir or str(spool_dir()),
            self.spool_bytes,
        )

    @property
    def grpc_port(self) -> int | None:
        """Return the port of the OTLP/gRPC intake (0: any free one), None where it is off."""
        if self.otlp_grpc_port == GRPC_OFF:
            return None
        return int(self.otlp_grpc_port or (GRPC_PORT if self.otlp_port else 0))

    @property
    def paths(self) -> HostPaths:
        """Return the roots of the host's pseudo file systems."""
        return HostPaths(Path(self.path_procfs), Path(self.path_cgroup))

    @property
    def walk_limits(self) -> WalkLimits:
        """Return the bounds on the cgroups that are read."""
        return WalkLimits(self.cgroup_depth, self.cgroup_count)

    @property
    def gpu(self) -> GpuSettings:
        """Return what is said of the GPUs; one may take a third of the time that the signal has."""
        return GpuSettings(self.gpu_library, self.gpu_dcgm, min(1.0, self.deadline / 3))

    @property
    def selection(self) -> Selection:
        """Return which disks, interfaces, cgroups and processes are read."""
        return Selection(
            self.disk_exclude,
            self.network_exclude,
            self.cgroup_match,
            (*self.process_names, *self.ebpf_serving),
        )

    @property
    def probes(self) -> ProbeSettings:
        """Return what is said of the eBPF probes."""
        enabled = self.ebpf_enabled and not self.unprivileged and "ebpf" not in self.disable
        why_off = "unprivileged: no probes" if self.unprivileged else ProbeSettings.why_off
        return ProbeSettings(enabled, self.ebpf_probes, self.ebpf_cuda, self.ebpf_watch, why_off)

    @property
    def kube(self) -> KubeSettings:
        """Return what is said of Kubernetes."""
        token, ca = self.kube_token_file, self.kube_ca_file
        access = KubeletAccess(self.kubelet, token, ca, self.kube_insecure)
        return KubeSettings(
            access, self.kube_pod_resources, self.kube_labels, deadline_s=self.deadline
        )

    @property
    def scraping(self) -> ServerSettings:
        """Return what is said of inference servers; raises `ConfigError`."""
        return ServerSettings(
            parse_targets(self.servers),
            self.servers_discover,
            self.servers_interval,
            min(2.0, self.deadline / 2),
            thresholds_s=self.servers_slow,
        )

    @property
    def node(self) -> str:
        """Return the name of this host as spans and metrics carry it."""
        return self.host_name or socket.gethostname()
