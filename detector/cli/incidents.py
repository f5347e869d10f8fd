"""`tailcause incidents`: the list."""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from detector.cli import options
from detector.client import open_incidents
from detector.incidents.database import Summary

_EPILOG = """\
examples:
  tailcause incidents              the newest first
  tailcause incidents --json       for scripts

exit codes: 0 answered (also when there are none), 2 the state folder cannot be read
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = _EPILOG
    options.add_state(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the incidents."""
    found = open_incidents(args.state).list()
    if args.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
    elif not found:
        print("no incident")
    else:
        _print_table(found)
    return 0


def _print_table(found: Sequence[Summary]) -> None:
    from rich.console import Console  # noqa: PLC0415  only a person needs it
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table("incident", "since (UTC)", "service", "status", "what", box=None, pad_edge=False)
    for incident in found:
        since = datetime.fromtimestamp(incident.onset_unix_s, tz=UTC)
        what = incident.headline or incident.error or "analysing"
        row = (
            incident.id, f"{since:%Y-%m-%d %H:%M:%S}", incident.service, incident.status.value, what,
        )  # fmt: skip
        table.add_row(*(Text(cell) for cell in row))
    Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table)
