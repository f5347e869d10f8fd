"""Options that several subcommands share."""

import argparse
import logging
import re
import sys
from pathlib import Path

from detector.state import default_state_dir

_UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0}


def add_state(parser: argparse.ArgumentParser) -> None:
    """Declare --state."""
    parser.add_argument(
        "--state", type=Path, metavar="DIR", default=default_state_dir(),
        help="state folder (default: $TAILCAUSE_STATE or %(default)s)",
    )  # fmt: skip


def add_json(parser: argparse.ArgumentParser) -> None:
    """Declare --json."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def duration_s(text: str) -> float:
    """Read `2s`, `500ms`, `1m` or a number of seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: write 2s, 500ms or 1m")
    return float(match[1]) * _UNITS_S[match[2]]


def log_to_stderr(*, verbose: bool) -> None:
    """Send key=value log lines to stderr."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbose else logging.INFO,
        format="time=%(asctime)s level=%(levelname)s logger=%(name)s event=%(message)s",
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
