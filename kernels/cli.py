"""`tailcause-workload`: one literal table of commands, imported when used."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from kernels.errors import WorkloadError

EXIT_CANNOT_START = 2

EXAMPLES = """examples:
  tailcause-workload serve --port 8000
  tailcause-workload up --state /tmp/chat --service chat --port 8000 --otlp http://127.0.0.1:4318
  tailcause-workload load --url http://127.0.0.1:8000 --rate 20 --duration 60s
  tailcause-workload fault cpu-quota --state /tmp/chat --intensity 3 --for 30s
"""


@dataclass(frozen=True)
class Command:
    """One row of the table: the module is imported only when its command is asked for."""

    name: str
    help: str
    module: str


COMMANDS: tuple[Command, ...] = (
    Command("serve", "serve the model over HTTP in this process", "kernels.workload.serve_cli"),
    Command("up", "supervise a server in a cgroup of its own", "kernels.supervisor.up_cli"),
    Command(
        "deploy", "replace the server of `up` by a new revision", "kernels.supervisor.deploy_cli"
    ),
    Command("balance", "spread requests over replicas", "kernels.balancer.balance_cli"),
    Command("load", "send requests at a given rate", "kernels.load.load_cli"),
    Command("fault", "inject a real fault and undo it", "kernels.faults.fault_cli"),
    Command("train", "train the model on local text", "kernels.train.train_cli"),
)


class CommandModule(Protocol):
    """What a command's module exposes."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the result is the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 2 when it cannot start."""
    words = list(sys.argv[1:] if argv is None else argv)
    command, rest = _pick(words)
    try:
        return _run(command, rest)
    except WorkloadError as error:
        print(f"tailcause-workload: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        print(f"tailcause-workload: {error}: pip install 'tailcause[workload]'", file=sys.stderr)
    return EXIT_CANNOT_START


def _run(command: Command, words: list[str]) -> int:
    module = cast("CommandModule", importlib.import_module(command.module))
    parser = argparse.ArgumentParser(
        prog=f"tailcause-workload {command.name}",
        description=f"{command.help[0].upper()}{command.help[1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    return module.run(parser.parse_args(words))


def _pick(words: list[str]) -> tuple[Command, list[str]]:
    """Find the command that the words name and what is left for its own parser."""
    parser = argparse.ArgumentParser(
        prog="tailcause-workload",
        description="The reference workload: a small inference server, its load and its faults.",
        epilog="commands:\n"
        + "".join(f"  {command.name:<8}{command.help}\n" for command in COMMANDS)
        + f"\n{EXAMPLES}\nexit codes: 0 done, 1 check failed, 2 cannot start\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "command", choices=[command.name for command in COMMANDS], metavar="COMMAND"
    )
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    return next(row for row in COMMANDS if row.name == args.command), list(args.rest)


if __name__ == "__main__":
    sys.exit(main())
