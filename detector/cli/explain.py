"""`tailcause explain`: the report of an incident."""

import argparse
import shutil
import sys
from pathlib import Path

from detector.cli import options
from detector.client import Incidents, open_incidents
from detector.errors import CannotStartError
from detector.model import Report, Verdict

_EPILOG = """\
examples:
  tailcause explain                          the latest incident, on the terminal
  tailcause explain INCIDENT --html out.html one self-contained file
  tailcause explain --markdown               for a ticket
  tailcause explain --json                   canonical JSON

exit codes: 0 answered (also when there is no incident), 2 unknown incident,
3 inconclusive, or not analysed yet
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = _EPILOG
    options.add_state(parser)
    parser.add_argument("incident", nargs="?", help="id of the incident (default: the latest)")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print canonical JSON")
    shape.add_argument("--html", type=Path, metavar="FILE", help="write a self-contained page")
    shape.add_argument("--markdown", action="store_true", help="print Markdown")


def run(args: argparse.Namespace) -> int:
    """Print or write the report."""
    incidents = open_incidents(args.state)
    chosen = args.incident or _latest(incidents)
    if chosen is None:
        print("null" if args.json else "no incident")
        return 0
    report = incidents.report(chosen)
    if report is None:
        print(_why_not(incidents, chosen), file=sys.stderr)
        return 3
    _show(report, args)
    return 3 if report.verdict is Verdict.INCONCLUSIVE else 0


def _latest(incidents: Incidents) -> str | None:
    found = incidents.list()
    return found[0].id if found else None


def _why_not(incidents: Incidents, chosen: str) -> str:
    error = next((summary.error for summary in incidents.list() if summary.id == chosen), "")
    return f"incident {chosen} has no report: {error or 'it is being analysed'}"


def _show(report: Report, args: argparse.Namespace) -> None:
    """Render; each renderer is imported alone."""
    if args.json:
        from detector.report.canonical import dumps  # noqa: PLC0415

        sys.stdout.write(dumps(report).decode() + "\n")
    elif args.html is not None:
        from detector.report.html import render as render_html  # noqa: PLC0415

        _write(args.html, render_html(report))
    elif args.markdown:
        from detector.report.markdown import render as render_markdown  # noqa: PLC0415

        sys.stdout.write(render_markdown(report))
    else:
        from detector.report.terminal import render as render_terminal  # noqa: PLC0415

        width = min(shutil.get_terminal_size((100, 24)).columns, 120)
        sys.stdout.write(render_terminal(report, width=width, color=sys.stdout.isatty()))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise CannotStartError(f"cannot write {path}: {exc.strerror}") from exc
    print(path)
