"""`tailcause-agent once`."""

import argparse

import msgspec

from agent.config import Config
from agent.survey import Surveyed, run_survey
from agent.telemetry.model import Sample
from agent.telemetry.names import BY_NAME


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace, config: Config) -> int:
    """Print every signal with its values or with the reason why it has none."""
    signals = run_survey(config)
    if args.json:
        print(msgspec.json.encode({"signals": [_plain(s) for s in signals]}).decode())
    else:
        print("\n\n".join(_block(surveyed) for surveyed in signals))
    return 0


def _plain(surveyed: Surveyed) -> dict[str, object]:
    return {
        "signal": surveyed.name,
        "state": surveyed.status.state,
        "reason": surveyed.status.reason,
        "samples": surveyed.samples,
    }


def _block(surveyed: Surveyed) -> str:
    reason = f": {surveyed.status.reason}" if surveyed.status.reason else ""
    head = f"{surveyed.name} ({surveyed.status.state}{reason})"
    return "\n".join([head, *(f"  {_line(sample)}" for sample in surveyed.samples)])


def _line(sample: Sample) -> str:
    keys = ", ".join(f"{key}={value}" for key, value in sample.attributes.items())
    unit = BY_NAME[sample.metric].unit
    shown = "" if unit == "1" else f" {unit}"
    return f"{sample.metric}{{{keys}}} {sample.value:.15g}{shown}"
