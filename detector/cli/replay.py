"""`tailcause replay`: analyse a stored incident again; the answer must be the same."""

import argparse
import difflib
import sys

import msgspec

from detector.cli import options
from detector.client import open_incidents
from detector.errors import NotFoundError

_MOST_LINES = 40
_EPILOG = """\
examples:
  tailcause replay INCIDENT          analyse the stored snapshot, compare with the stored report
  tailcause replay INCIDENT --json   {"incident":...,"same":true,"difference":[]}

exit codes: 0 the same canonical JSON, 1 it differs, 2 there is nothing to replay
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = _EPILOG
    options.add_state(parser)
    parser.add_argument("incident", help="id of the incident")
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Compare the stored report with a fresh one."""
    from detector.rca.engine import analyse  # noqa: PLC0415  heavy
    from detector.report.canonical import dumps  # noqa: PLC0415

    incidents = open_incidents(args.state)
    stored, snapshot = incidents.report(args.incident), incidents.snapshot(args.incident)
    if stored is None or snapshot is None:
        what = "report" if stored is None else "snapshot"
        raise NotFoundError(f"incident {args.incident} has no {what} to replay")
    difference = _difference(dumps(stored), dumps(analyse(snapshot)))
    if args.json:
        answer = {"incident": args.incident, "same": not difference, "difference": difference}
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    elif difference:
        print(f"incident {args.incident}: the report differs")
        print("\n".join(difference))
    else:
        print(f"incident {args.incident}: the same report")
    return 1 if difference else 0


def _difference(stored: bytes, fresh: bytes) -> list[str]:
    """Return the first lines that differ, as a unified diff; empty when the bytes agree."""
    if stored == fresh:
        return []
    before, after = (
        msgspec.json.format(text, indent=1).decode().splitlines() for text in (stored, fresh)
    )
    lines = difflib.unified_diff(before, after, "stored", "replayed", lineterm="", n=1)
    return list(lines)[:_MOST_LINES] or ["the canonical bytes differ"]
