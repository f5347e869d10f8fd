"""Configuration: a TOML file, under environment variables, under flags; checked once."""

import difflib
import re
import socket
import tomllib
import urllib.parse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from agent.collectors.registry import COLLECTORS
from agent.duration import parse_duration_s
from agent.errors import ConfigError
from agent.gpu.settings import GpuSettings
from agent.host.cgroup_walk import WalkLimits
from agent.host.paths import DEFAULT_CGROUP, DEFAULT_PROCFS, HostPaths
from agent.host.selection import DISK_EXCLUDE, EVERYTHING, NETWORK_EXCLUDE, Selection
from agent.kube.settings import KubeletAccess, KubeSettings
from agent.probelist import ProbeSettings, known

ENVIRONMENT_PREFIX = "TAILCAUSE_AGENT_"
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

    @property
    def metrics_url(self) -> str:
        """Return where metrics are pushed: like the spans, unless `export` says otherwise."""
        return "" if self.export == EXPORT_OFF else self.export or self.forward

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
        enabled = self.ebpf_enabled and "ebpf" not in self.disable
        return ProbeSettings(enabled, self.ebpf_probes, self.ebpf_cuda, self.ebpf_watch)

    @property
    def kube(self) -> KubeSettings:
        """Return what is said of Kubernetes."""
        token, ca = self.kube_token_file, self.kube_ca_file
        access = KubeletAccess(self.kubelet, token, ca, self.kube_insecure)
        return KubeSettings(
            access, self.kube_pod_resources, self.kube_labels, deadline_s=self.deadline
        )

    @property
    def node(self) -> str:
        """Return the name of this host as spans and metrics carry it."""
        return self.host_name or socket.gethostname()


DURATIONS = ("interval", "export_interval", "deadline", "sample_wait")
URLS = ("forward", "export", "kubelet", "gpu_dcgm")
PORTS = ("otlp_port", "metrics_port")
MAY_BE_OFF = ("export", "gpu_dcgm")
LISTS = (
    "disable",
    "cgroup_match",
    "disk_exclude",
    "network_exclude",
    "process_names",
    "ebpf_probes",
    "ebpf_watch",
    "ebpf_serving",
    "kube_labels",
)
SHARES = ("ebpf_own_budget", "ebpf_imposed_budget")
LOG_LEVELS = ("debug", "info", "warning", "error")


def load(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, object]) -> Config:
    """Return the configuration; raises `ConfigError` with the key and a suggestion."""
    values: dict[str, object] = {}
    if file is not None:
        values |= _checked(_flatten(_read(file)), str(file))
    values |= _checked(_from_environment(environment), "the environment")
    values |= flags
    return _build(values)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"{file}: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{file} is not TOML: {exc}") from exc


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Return `[path] procfs = …` as path_procfs, so that both spellings work."""
    flat: dict[str, object] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}".replace("-", "_")
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{name}_")
        else:
            flat[name] = value
    return flat


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    return {
        name.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX)
    }


def _checked(values: dict[str, object], where: str) -> dict[str, object]:
    for key in values:
        if key not in Config.__struct_fields__:
            hint = suggestion(key, Config.__struct_fields__)
            raise ConfigError(f"{where}: unknown key {key!r}{hint}")
    return values


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` for a misspelt word, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _build(values: dict[str, object]) -> Config:
    for key in DURATIONS:
        if key in values:
            values[key] = parse_duration_s(str(values[key]))
    if "otlp_grpc_port" in values:
        values["otlp_grpc_port"] = str(values["otlp_grpc_port"])
    for key in LISTS:
        if isinstance(values.get(key), str):
            values[key] = [part for part in re.split(r"[,\s]+", str(values[key])) if part]
    try:
        config = msgspec.convert(values, Config, strict=False)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"configuration: {exc}") from exc
    _validate(config)
    return config


def _validate(config: Config) -> None:
    for key in PORTS:
        if not 0 <= getattr(config, key) <= 65535:
            raise ConfigError(f"{key} must be a port, 0 to 65535 (0: any free one)")
    _check_intake(config)
    for key in DURATIONS:
        if getattr(config, key) < 0.01:
            raise ConfigError(f"{key} must be at least 10ms")
    for key in URLS:
        _check_url(key, getattr(config, key))
    if config.log_level not in LOG_LEVELS:
        hint = suggestion(config.log_level, LOG_LEVELS)
        raise ConfigError(f"log_level must be one of {', '.join(LOG_LEVELS)}{hint}")
    for key in SHARES:
        if not 0 < getattr(config, key) <= 1:
            raise ConfigError(f"{key} must be a share, such as 0.03")
    if not config.ebpf_memory_budget > 0:
        raise ConfigError("ebpf_memory_budget must be megabytes, such as 96")
    _check_names("disable: no collector", config.disable, [entry.name for entry in COLLECTORS])
    _check_names("ebpf_probes: no probe", config.ebpf_probes, known())


def _check_intake(config: Config) -> None:
    port = config.otlp_grpc_port
    usable = port.isascii() and port.isdigit() and int(port) <= 65535
    if port not in {"", GRPC_OFF} and not usable:
        raise ConfigError("otlp_grpc_port must be a port, 0 to 65535 (0: any free one), or off")
    if bool(config.tls_cert) != bool(config.tls_key):
        raise ConfigError("tls_cert and tls_key belong together: give both")
    if config.tls_client_ca and not config.tls_cert:
        raise ConfigError("tls_client_ca needs tls_cert and tls_key")
    if not 0 < config.sample_rest <= 1:
        raise ConfigError("sample_rest must be a share, such as 0.1 (1: every trace is kept)")


def _check_names(problem: str, given: Iterable[str], names: list[str]) -> None:
    for name in given:
        if name not in names:
            raise ConfigError(f"{problem} {name!r}{suggestion(name, names)}")


def _check_url(key: str, url: str) -> None:
    if not url or (key in MAY_BE_OFF and url == EXPORT_OFF):
        return
    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{key} must be a URL such as http://127.0.0.1:14318, not {url!r}")
