"""Settings of the service: TOML file < environment < flags, validated once and passed down."""

import difflib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from detector.errors import ConfigError

ENVIRONMENT_PREFIX = "TAILCAUSE_DETECTOR_"

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=0, le=65535)]


class ForecastConfig(msgspec.Struct, frozen=True):
    """How a series' normal state is learned."""

    name: str = "tail"
    min_baseline_requests: Count = 400
    min_baseline_windows: Count = 12
    half_life_windows: Positive = 150.0
    reservoir_values: Count = 8192
    dispersion_windows: Count = 300
    prior_window_variance: NotNegative = 0.05
    """Variance of log(exceedance rate) between windows that is assumed before it is measured."""
    prior_windows: Count = 10


class DecisionConfig(msgspec.Struct, frozen=True):
    """When a window is out of band, and when that becomes an incident."""

    sigma: Positive = 2.5
    consecutive_windows: Count = 3
    min_ratio: Annotated[float, Meta(ge=1)] = 1.5
    min_requests: Count = 8
    warmup_windows: Annotated[int, Meta(ge=0)] = 2
    closing_windows: Count = 5
    refractory_s: NotNegative = 60.0
    relearn_after_s: Positive = 600.0


class SeriesConfig(msgspec.Struct, frozen=True):
    """How requests become windows."""

    window_s: Positive = 2.0
    grace_s: NotNegative = 1.0
    max_groups: Count = 500
    """Bound on service x model x replica; what is beyond is counted as overflow."""
    idle_windows: Count = 150
    """A group without traffic for so long is forgotten."""
    history_windows: Count = 180


class StoreConfig(msgspec.Struct, frozen=True):
    """Bounds of the embedded store."""

    max_spans: Count = 150_000
    max_points: Count = 300_000
    max_age_s: Positive = 300.0
    max_future_s: Positive = 60.0
    flush_interval_s: Positive = 10.0
    segment_cap_bytes: Count = 512 << 20
    max_incidents: Count = 200


class AnalysisConfig(msgspec.Struct, frozen=True):
    """What root-cause analysis gets to see."""

    delay_windows: Annotated[int, Meta(ge=0)] = 4
    baseline_s: Positive = 120.0


class Config(msgspec.Struct, frozen=True):
    """All settings; every key can be set as `section.key`."""

    host: str = "127.0.0.1"
    otlp_port: Port = 14318
    otlp_grpc_port: str = ""
    """A port or `off`; by default 14317, or any free one where `otlp_port` is 0."""
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    bearer_token_file: str = ""
    api_port: Port = 8790
    series: SeriesConfig = SeriesConfig()
    forecast: ForecastConfig = ForecastConfig()
    decision: DecisionConfig = DecisionConfig()
    store: StoreConfig = StoreConfig()
    analysis: AnalysisConfig = AnalysisConfig()


def load(
    file: Path | None, environ: Mapping[str, str], flags: Iterable[tuple[str, Any]] = ()
) -> Config:
    """Merge file, environment and flags; an unknown key is a `ConfigError` with a suggestion."""
    known = dict(_keys(Config))
    merged: dict[str, Any] = {}
    for source, pairs in (
        (str(file), _file_pairs(file)),
        ("the environment", _environment_pairs(environ, known)),
        ("the command line", flags),
    ):
        for key, value in pairs:
            if key not in known:
                raise ConfigError(_unknown(key, source, known))
            merged[key] = value
    return _validated(merged)


def _keys(struct: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for field in msgspec.structs.fields(struct):
        if isinstance(field.default, msgspec.Struct):
            yield from _keys(type(field.default), f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field.default


def _file_pairs(file: Path | None) -> Iterator[tuple[str, Any]]:
    if file is None:
        return
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"cannot read the configuration {file}: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{file} is not valid TOML: {exc}") from exc
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{inner}", item) for inner, item in value.items())
        else:
            yield key, value


def _environment_pairs(
    environ: Mapping[str, str], known: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    names = {key.replace(".", "_").upper(): key for key in known}
    for name, value in environ.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            short = name.removeprefix(ENVIRONMENT_PREFIX)
            yield names.get(short, short.lower()), value


def _unknown(key: str, source: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(known), n=1)
    hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(sorted(known))}"
    return f"unknown setting {key!r} in {source}: {hint}"


def _validated(merged: Mapping[str, Any]) -> Config:
    tree: dict[str, Any] = {}
    for key, value in merged.items():
        section, _, inner = key.rpartition(".")
        (tree.setdefault(section, {}) if section else tree)[inner] = value
    if "otlp_grpc_port" in tree:  # a number in TOML
        tree["otlp_grpc_port"] = str(tree["otlp_grpc_port"])
    try:
        config = msgspec.convert(tree, Config, strict=False)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"bad setting: {exc}") from exc
    _check_intake(config)
    _check_reach(config)
    return config


def _check_intake(config: Config) -> None:
    port = config.otlp_grpc_port
    usable = port.isascii() and port.isdigit() and int(port) <= 65535
    if port not in {"", "off"} and not usable:
        raise ConfigError("otlp_grpc_port must be a port, 0 to 65535 (0: any free one), or off")
    if bool(config.tls_cert) != bool(config.tls_key):
        raise ConfigError("tls_cert and tls_key belong together: give both")
    if config.tls_client_ca and not config.tls_cert:
        raise ConfigError("tls_client_ca needs tls_cert and tls_key")


def _check_reach(config: Config) -> None:
    waiting = config.analysis.delay_windows + config.decision.consecutive_windows + 1
    needed = config.analysis.baseline_s + waiting * config.series.window_s + config.series.grace_s
    if config.store.max_age_s < needed:
        raise ConfigError(
            f"store.max_age_s is {config.store.max_age_s:g} but an analysis looks back {needed:g} s: "
            "raise it or lower analysis.baseline_s"
        )


def from_environment(flags: Iterable[tuple[str, Any]] = (), file: Path | None = None) -> Config:
    """`load` with this process's environment."""
    return load(file, os.environ, flags)
