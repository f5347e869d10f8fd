"""`tailcause`: a table of subcommands, each loaded when it is called."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from detector.errors import DetectorError


@dataclass(frozen=True)
class Command:
    """One subcommand; `module` has `add_arguments(parser)` and `run(args) -> int`."""

    name: str
    help: str
    module: str


COMMANDS: tuple[Command, ...] = (
    Command(
        "demo", "real load, a real fault, found and checked against the truth",
        "detector.cli.demo.command",
    ),
    Command("serve", "take telemetry in and watch the P99s", "detector.cli.serve"),
    Command("incidents", "list incidents", "detector.cli.incidents"),
    Command("explain", "print the report of an incident", "detector.cli.explain"),
    Command("replay", "analyse a stored incident again and compare", "detector.cli.replay"),
    Command("doctor", "what works on this machine, what is lost, what to do", "detector.cli.doctor"),
)  # fmt: skip

_EPILOG = """\
examples:
  tailcause demo                 see it work
  tailcause serve                listen for OTLP on 14318, show incidents on http://127.0.0.1:8790
  tailcause explain              the latest incident

exit codes: 0 answered, 1 a check failed, 2 cannot start, 3 inconclusive
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in arguments if not word.startswith("-")), "")
    try:
        parser, module = _parser(chosen)
        args = parser.parse_args(arguments)
        if module is None:
            parser.print_help()
            return 2
        return int(module.run(args))
    except DetectorError as exc:
        return _complain(chosen, str(exc))
    except ModuleNotFoundError as exc:
        return _complain(chosen, _missing(exc))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser(chosen: str) -> tuple[argparse.ArgumentParser, ModuleType | None]:
    """Build the parser, importing nothing but the chosen command's module."""
    parser = argparse.ArgumentParser(
        prog="tailcause",
        description="Finds the cause of tail latency on inference nodes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(metavar="COMMAND")
    module = None
    for command in COMMANDS:
        sub = subparsers.add_parser(
            command.name,
            help=command.help,
            description=command.help[0].upper() + command.help[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if command.name == chosen:
            module = import_module(command.module)
            module.add_arguments(sub)
    return parser, module


def _complain(command: str, message: str) -> int:
    print(f"tailcause {command}: {message}", file=sys.stderr)
    return 2


def _missing(exc: ModuleNotFoundError) -> str:
    return f"the package {exc.name} is missing: pip install 'tailcause[detector]'"


if __name__ == "__main__":
    sys.exit(main())
