"""`tailcause-agent`: one literal table of commands, imported when used."""

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from agent.errors import AgentError
from agent.options import add_options, given_flags

if TYPE_CHECKING:
    from agent.config import Config

EXIT_CANNOT_START = 2

_SETTINGS = """Settings come from --config FILE (TOML), then TAILCAUSE_AGENT_* in the environment, then flags.

exit codes: 0 answered, 1 doctor found something to fix or off found no agent, 2 cannot start"""


@dataclass(frozen=True)
class Command:
    """One row of the table: the module is imported only when its command is asked for."""

    name: str
    help: str
    module: str
    examples: tuple[str, ...]
    """What may follow the command's name."""


COMMANDS: tuple[Command, ...] = (
    Command(
        "run",
        "collect, enrich, export and forward until stopped",
        "agent.cli_run",
        ("--forward http://127.0.0.1:14318", "--config /etc/tailcause/agent.toml --dry-run", "--unprivileged"),
    ),
    Command(
        "once",
        "collect every signal once and print the values",
        "agent.cli_once",
        ("--json", "--disable gpu,ebpf"),
    ),
    Command(
        "doctor",
        "say which signals work, why others do not, what each costs",
        "agent.cli_doctor",
        ("", "--config /etc/tailcause/agent.toml --json"),
    ),
    Command(
        "off",
        "take the probes of running agents out of the kernel, at once",
        "agent.cli_off",
        ("", "--json"),
    ),
    Command(
        "signals",
        "print the catalogue: every metric and where it comes from",
        "agent.cli_signals",
        ("--live", "--json | jq -r '.metrics[].prometheus'", "--markdown"),
    ),
)  # fmt: skip


class CommandModule(Protocol):
    """What a command's module exposes."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own arguments."""

    def run(self, args: argparse.Namespace, config: "Config") -> int:
        """Do it; the result is the exit code. `args.load()` reads the configuration again."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 2 when it cannot start."""
    words = sys.argv[1:] if argv is None else argv
    try:
        found, modules = parser(words)
        args = found.parse_args(words)
        return _run(args, modules[args.command])
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        return _refuse(f"{error}: pip install 'tailcause[agent]'")
    except AgentError as error:
        return _refuse(str(error))


def _run(args: argparse.Namespace, module: CommandModule) -> int:
    from agent import config_load  # noqa: PLC0415  `--help` needs none of it

    args.load = lambda: config_load.load(args.config, os.environ, given_flags(args))
    loaded = args.load()
    logging.basicConfig(
        stream=sys.stderr,
        level=loaded.log_level.upper(),
        format="time=%(asctime)s level=%(levelname)s logger=%(name)s %(message)s",
    )
    return module.run(args, loaded)


def _refuse(text: str) -> int:
    print(f"tailcause-agent: {text}", file=sys.stderr)
    return EXIT_CANNOT_START


def parser(argv: Sequence[str]) -> tuple[argparse.ArgumentParser, dict[str, CommandModule]]:
    """Return the parser, with the module of the one command that is named on the line."""
    whole = argparse.ArgumentParser(
        prog="tailcause-agent",
        description="Collects what an inference node does to its requests, and enriches their spans.",
        epilog=_epilog(COMMANDS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    modules: dict[str, CommandModule] = {}
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name,
            help=command.help,
            description=f"{command.help.capitalize()}.",
            epilog=_epilog((command,)),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if command.name in argv[:1]:
            modules[command.name] = cast("CommandModule", importlib.import_module(command.module))
            modules[command.name].add_arguments(sub)
            add_options(sub)
    return whole, modules


def _epilog(commands: Sequence[Command]) -> str:
    lines = [
        f"  tailcause-agent {command.name} {words}".rstrip()
        for command in commands
        for words in command.examples
    ]
    return "\n".join(["examples:", *lines, "", _SETTINGS])


if __name__ == "__main__":
    sys.exit(main())
