"""`tailcause-agent signals`."""

import argparse

import msgspec

from agent.collectors.registry import COLLECTORS
from agent.config import Config
from agent.exporters.families import prometheus_name
from agent.survey import Surveyed, run_survey
from agent.telemetry.catalogue import spans
from agent.telemetry.document import Group, Row, markdown
from agent.telemetry.metric import Metric
from agent.telemetry.names import METRICS

_OWN, _SPANS = "agent", "spans"
"""The signals of the metrics that the agent makes of itself, and of the spans that pass through it."""
_OF_SPANS = frozenset(metric.name for metric in spans.METRICS)
_ROUNDS = 2  # the first one opens files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, `--markdown` and `--live`."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print one JSON object")
    how.add_argument("--markdown", action="store_true", help="print the page of documentation")
    parser.add_argument(
        "--live", action="store_true", help="collect, and add each signal's state and cost"
    )


def run(args: argparse.Namespace, config: Config) -> int:
    """Print every metric of the catalogue under the signal that it comes from."""
    rows = [row_of(metric) for metric in METRICS]
    if args.markdown:
        print(markdown(groups(), rows), end="")
        return 0
    live = {one.name: one for one in run_survey(config, _ROUNDS)} if args.live else {}
    if args.json:
        signals = [_plain(group, live.get(group.signal)) for group in groups()]
        print(msgspec.json.encode({"signals": signals, "metrics": rows}).decode())
        return 0
    for group in groups():
        print(f"{group.signal}: {group.help} ({group.source})")
        if group.signal in live:
            print(f"  now: {_state(live[group.signal])}")
        print("\n".join(_line(row) for row in rows if row.signal == group.signal) + "\n")
    return 0


def groups() -> list[Group]:
    """Return the signals in the order in which they are shown."""
    return [
        *(Group(entry.name, entry.source, entry.help) for entry in COLLECTORS),
        Group(_SPANS, "OTLP that comes in", "requests as their spans tell of them, and what became of these"),
        Group(_OWN, "the agent itself", "its own cost, losses, states and configuration"),
    ]  # fmt: skip


def row_of(metric: Metric) -> Row:
    """Return a metric with its signal and its names for Prometheus."""
    return Row(
        signal=signal_of(metric.name),
        name=metric.name,
        unit=metric.unit,
        kind=str(metric.kind),
        description=metric.description,
        attributes=metric.attributes,
        prometheus=prometheus_name(metric),
        alias=metric.alias,
        aliases=tuple(alias.name for alias in metric.aliases),
    )


def signal_of(metric: str) -> str:
    """Return the signal that a metric comes from; counters of losses are the agent's own."""
    if metric.startswith("tailcause.pipe."):
        return _OWN
    if metric in _OF_SPANS:
        return _SPANS
    return next((entry.name for entry in COLLECTORS if metric in entry.metrics), _OWN)


def _plain(group: Group, live: Surveyed | None) -> dict[str, object]:
    plain: dict[str, object] = msgspec.structs.asdict(group)
    if live is not None:
        plain |= {
            "state": live.status.state,
            "reason": live.status.reason,
            "cost_ms": round(live.cost_s * 1e3, 3),
            "values": len(live.samples),
        }
    return plain


def _state(live: Surveyed) -> str:
    reason = f" ({live.status.reason})" if live.status.reason else ""
    cost = f"{live.cost_s * 1e3:.2f} ms a collection, {len(live.samples)} values"
    return f"{live.status.state}{reason}, {cost}"


def _line(row: Row) -> str:
    return (
        f"  {row.name} [{row.unit}, {row.kind}]\n"
        f"      {row.description}\n"
        f"      Prometheus: {', '.join((row.prometheus, *row.also))}"
    )
