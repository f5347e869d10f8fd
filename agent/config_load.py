"""Reads the configuration: a TOML file, under environment variables, under flags; checked once."""

import difflib
import re
import tomllib
import urllib.parse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from agent.collectors.registry import COLLECTORS
from agent.config import EXPORT_OFF, GRPC_OFF, Config
from agent.duration import parse_duration_s
from agent.errors import ConfigError
from agent.forwarding import SCHEMES, parse_headers
from agent.probelist import known

ENVIRONMENT_PREFIX = "TAILCAUSE_AGENT_"

DURATIONS = ("interval", "export_interval", "deadline", "sample_wait", "servers_interval")
URLS = ("forward", "export", "kubelet", "gpu_dcgm")
OTLP_URLS = ("forward", "export")
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
    "servers",
    "servers_slow",
)
TABLES = ("headers",)
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
        if isinstance(value, Mapping) and name not in TABLES:
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
    if isinstance(values.get("headers"), str):
        values["headers"] = parse_headers(str(values["headers"]))
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
    _check_way_out(config)
    config.scraping.check()
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


def _check_way_out(config: Config) -> None:
    config.forwarding.check()
    if config.max_series < 2:
        raise ConfigError("max_series must be at least 2")


def _check_names(problem: str, given: Iterable[str], names: list[str]) -> None:
    for name in given:
        if name not in names:
            raise ConfigError(f"{problem} {name!r}{suggestion(name, names)}")


def _check_url(key: str, url: str) -> None:
    if not url or (key in MAY_BE_OFF and url == EXPORT_OFF):
        return
    try:
        parts = urllib.parse.urlsplit(url)
        schemes = SCHEMES if key in OTLP_URLS else ("http", "https")
        usable = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{key} must be a URL such as http://127.0.0.1:14318, not {url!r}")
