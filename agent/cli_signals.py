"""`tailcause-agent signals`."""

import argparse
from typing import Any

import msgspec

from agent.collectors.registry import COLLECTORS
from agent.config import Config
from agent.exporters.families import prometheus_name
from agent.telemetry.metric import Metric
from agent.telemetry.names import METRICS

_OWN = "agent"
"""The signal of the metrics that the agent makes of itself."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace, _: Config) -> int:
    """Print every metric of the catalogue under the signal that it comes from."""
    rows = [_row(metric) for metric in METRICS]
    if args.json:
        print(msgspec.json.encode({"metrics": rows}).decode())
        return 0
    for signal, source, what in (
        *_collectors(),
        (_OWN, "the agent itself", "its own cost and losses"),
    ):
        print(f"{signal}: {what} ({source})")
        print("\n".join(_line(row) for row in rows if row["signal"] == signal) + "\n")
    return 0


def _collectors() -> list[tuple[str, str, str]]:
    return [(entry.name, entry.source, entry.help) for entry in COLLECTORS]


def _row(metric: Metric) -> dict[str, object]:
    return {
        "signal": signal_of(metric.name),
        "name": metric.name,
        "unit": metric.unit,
        "kind": str(metric.kind),
        "description": metric.description,
        "attributes": metric.attributes,
        "prometheus": prometheus_name(metric),
        "alias": metric.alias,
        "aliases": [alias.name for alias in metric.aliases],
    }


def signal_of(metric: str) -> str:
    """Return the signal that a metric comes from; counters of losses are the agent's own."""
    if metric.startswith("tailcause.pipe."):
        return _OWN
    return next((entry.name for entry in COLLECTORS if metric in entry.metrics), _OWN)


def _line(row: dict[str, Any]) -> str:
    alias = "".join(f", {name}" for name in (row["alias"], *row["aliases"]) if name)
    return (
        f"  {row['name']} [{row['unit']}, {row['kind']}]\n"
        f"      {row['description']}\n"
        f"      Prometheus: {row['prometheus']}{alias}"
    )
