"""`tailcause doctor`: what works here, what is lost without the rest, and what to do about it."""

import argparse
import sys

import msgspec

from detector.cli import options
from detector.machine import Check, Machine, check_all

_EPILOG = """\
examples:
  tailcause doctor           one line per check, with what to do
  tailcause doctor --json    for scripts

exit codes: 0 the product works here (losses are listed), 1 something that it needs is missing
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = _EPILOG
    options.add_state(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the checks."""
    checks = check_all(Machine(state=args.state))
    if args.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(checks)).decode() + "\n")
    else:
        for check in checks:
            print(_line(check))
    return 1 if any(check.needed and not check.ok for check in checks) else 0


def _line(check: Check) -> str:
    if check.ok:
        return f"ok    {check.name:16} {check.found}"
    mark = "lost " if not check.needed else "FAIL "
    return f"{mark} {check.name:16} {check.found}\n{'':23}lost: {check.lost}\n{'':23}do: {check.remedy}"
