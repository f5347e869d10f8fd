"""What several commands share on the command line: state folder, settings, durations, logs."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def add_state(parser: argparse.ArgumentParser) -> None:
    """Add the folder by which the commands of one workload find each other."""
    parser.add_argument(
        "--state", type=Path, required=True, metavar="DIR", help="state folder of the workload"
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the repeatable server setting."""
    parser.add_argument(
        "--set",
        dest="settings",
        type=key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="server setting, repeatable",
    )


def key_value(text: str) -> tuple[str, str]:
    """Split `KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def cpu_set(text: str) -> frozenset[int]:
    """CPUs from a list such as `0,2-3`."""
    cpus: set[int] = set()
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            cpus.update(range(int(first), int(last or first) + 1))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 0,2-3") from None
    return frozenset(cpus)


def duration_s(text: str) -> float:
    """Seconds from `90`, `30s`, `500ms`, `2m` or `1h`."""
    for unit in sorted(_UNIT_S, key=len, reverse=True):
        if text.endswith(unit):
            return _number(text.removesuffix(unit), text) * _UNIT_S[unit]
    return _number(text, text)


def _number(digits: str, text: str) -> float:
    try:
        value = float(digits)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 30s or 2m")
    return value


def finish_help(parser: argparse.ArgumentParser, examples: Sequence[str], codes: str) -> None:
    """End the help with examples and exit codes."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    lines = "".join(f"  tailcause-workload {example}\n" for example in examples)
    parser.epilog = f"examples:\n{lines}\nexit codes: {codes}"


def start_logging() -> None:
    """Send logs to stderr; stdout is for results."""
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        level=logging.INFO,
        stream=sys.stderr,
        force=True,
    )
