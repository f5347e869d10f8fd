"""What `run` would do, without doing it."""

from agent.collectors.registry import COLLECTORS
from agent.config import Config
from agent.config_show import config_hash, mask_url, toml
from agent.outlets import Outlets
from agent.privileges import lost
from agent.probelist import GPU_API, wanted


def describe(config: Config) -> str:
    """Return the configuration as TOML, and in comments what would run; raises `CannotStartError`."""
    Outlets(config.forwarding)  # reads the certificates
    signals = [entry.name for entry in COLLECTORS if entry.name not in config.disable]
    rows = (
        ("configuration", config_hash(config)),
        ("listens on", _listens(config)),
        ("sends spans to", mask_url(config.forward) or "nobody"),
        ("sends metrics to", mask_url(config.metrics_url) or "nobody"),
        ("collects", ", ".join(signals) or "nothing"),
        ("disabled", ", ".join(config.disable) or "nothing"),
        ("probes", _probes(config)),
        ("lost for want of privileges", "; ".join(lost(config)) or "nothing"),
    )
    return "\n".join([toml(config), "", *(f"# {name}: {text}" for name, text in rows)])


def _listens(config: Config) -> str:
    ports = {
        "OTLP/HTTP": config.otlp_port,
        "OTLP/gRPC": config.grpc_port,
        "metrics": config.metrics_port,
    }
    shown = (
        f"{what} {port or 'any free port'}" for what, port in ports.items() if port is not None
    )
    return f"{config.listen}: {', '.join(shown)}"


def _probes(config: Config) -> str:
    if not config.probes.enabled:
        return f"none ({config.probes.why_off})"
    names = wanted(config.probes)
    return ", ".join(name for name in names if config.ebpf_cuda or name not in GPU_API)
