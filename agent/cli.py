"""`tailcause-agent`: one literal table of commands, imported when used."""

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from agent.errors import AgentError

if TYPE_CHECKING:
    from agent.config import Config

EXIT_CANNOT_START = 2

_EXAMPLES = """examples:
  tailcause-agent run --forward http://127.0.0.1:14318
  tailcause-agent run --config /etc/tailcause/agent.toml --export-interval 5s
  tailcause-agent once --json
  tailcause-agent doctor
  tailcause-agent off
  tailcause-agent signals

Settings come from --config FILE (TOML), then TAILCAUSE_AGENT_* in the environment, then flags.

exit codes: 0 answered, 1 doctor found something to fix, 2 cannot start"""


@dataclass(frozen=True)
class Command:
    """One row of the table: the module is imported only when its command is asked for."""

    name: str
    help: str
    module: str


COMMANDS: tuple[Command, ...] = (
    Command("run", "collect, enrich, export and forward until stopped", "agent.cli_run"),
    Command("once", "collect every signal once and print the values", "agent.cli_once"),
    Command("doctor", "say which signals work, why others do not, what each costs", "agent.cli_doctor"),
    Command("off", "take the probes of running agents out of the kernel, at once", "agent.cli_off"),
    Command("signals", "print the catalogue: every metric and where it comes from", "agent.cli_signals"),
)  # fmt: skip


class CommandModule(Protocol):
    """What a command's module exposes."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own arguments."""

    def run(self, args: argparse.Namespace, config: "Config") -> int:
        """Do it; the result is the exit code."""


@dataclass(frozen=True)
class Option:
    """One setting as a flag."""

    flag: str
    metavar: str
    help: str
    key: str = ""
    constant: str = ""
    """What a flag without a value sets its key to."""


OPTIONS: tuple[Option, ...] = (
    Option("--listen", "HOST", "address to listen on (127.0.0.1)"),
    Option("--otlp-port", "PORT", "OTLP/HTTP intake for spans, 0: any free one (4318)"),
    Option("--otlp-grpc-port", "PORT", "OTLP/gRPC intake (4317, or any free one); off: none"),
    Option("--tls-cert", "FILE", "certificate of the intakes, PEM; with --tls-key"),
    Option("--tls-key", "FILE", "its key, PEM"),
    Option("--tls-client-ca", "FILE", "clients need a certificate of this authority"),
    Option("--bearer-token-file", "FILE", "clients need one of these tokens, one a line"),
    Option("--no-redact", "", "forward prompts, SQL literals, log values as they are", "redact", "false"),
    Option("--sample-rest", "SHARE", "of traces neither slow nor failed to keep (1: all)"),
    Option("--sample-wait", "TIME", "how long a trace is held to be judged (5s)"),
    Option("--metrics-port", "PORT", "Prometheus endpoint, 0: any free one (9464)"),
    Option("--forward", "URL", "where enriched spans go, over OTLP/HTTP"),
    Option("--export", "URL", "where metrics go (as --forward); off: nowhere"),
    Option("--interval", "TIME", "how often signals are read (1s)"),
    Option("--export-interval", "TIME", "how often metrics are pushed (15s)"),
    Option("--deadline", "TIME", "after which a signal counts as hung (5s)"),
    Option("--disable", "NAMES", "signals to leave out, separated by commas"),
    Option("--host-name", "NAME", "name of this node in spans and metrics (the host's)"),
    Option("--path.procfs", "DIR", "where the host's procfs is mounted (/proc)"),
    Option("--path.cgroup", "DIR", "where the host's cgroups are mounted (/sys/fs/cgroup)"),
    Option("--cgroup-depth", "N", "levels of cgroups to read (16)"),
    Option("--cgroup-count", "N", "cgroups to read at most (1000)"),
    Option("--cgroup-match", "GLOBS", "paths of cgroups to read, !GLOB: not those (*)"),
    Option("--disk-exclude", "GLOBS", "disks to leave out (loop*, dm-*, partitions and others)"),
    Option("--network-exclude", "GLOBS", "interfaces to leave out (veth*, docker* and others)"),
    Option("--process-names", "NAMES", "processes to look at beside those that send spans"),
    Option("--log-level", "LEVEL", "debug, info, warning or error (info)"),
    Option("--gpu-library", "FILE", "the driver's libnvidia-ml.so.1 (where drivers put it)"),
    Option("--gpu-dcgm", "URL", "dcgm-exporter to read instead of NVML; off: none (port 9400 here)"),
    Option("--no-ebpf", "", "no probes in the kernel", "ebpf_enabled", "false"),
    Option("--ebpf-probes", "NAMES", "probes to run (all)"),
    Option("--ebpf-cuda", "", "let cuda and nccl put uprobes into other processes", "", "true"),
    Option("--ebpf-watch", "PIDS", "processes to watch beside those that send spans"),
    Option("--ebpf-serving", "NAMES", "processes that do the work of others' requests"),
    Option("--ebpf-own-budget", "SHARE", "of a core for the agent, before a probe goes (0.03)"),
    Option("--ebpf-imposed-budget", "SHARE", "of CPU in use, taken by probes (0.01)"),
    Option("--ebpf-memory-budget", "MB", "of agent and probes, and 1 MB more a CPU (96)"),
    Option("--kubelet", "URL", "the kubelet to ask for pods, such as https://NODE:10250 (none)"),
    Option("--kube-token-file", "FILE", "token for the kubelet (the service account's)"),
    Option("--kube-ca-file", "FILE", "CA of the kubelet's certificate (the service account's)"),
    Option("--kube-insecure", "", "trust any certificate of the kubelet", "", "true"),
    Option("--kube-labels", "NAMES", "labels of pods that their spans get (none)"),
    Option("--kube-pod-resources", "SOCKET", "the kubelet's, for GPUs; off: none (its usual place)"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 2 when it cannot start."""
    words = sys.argv[1:] if argv is None else argv
    try:
        parser, modules = _parser(words)
        args = parser.parse_args(words)
        return _run(args, modules[args.command])
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        return _refuse(f"{error}: pip install 'tailcause[agent]'")
    except AgentError as error:
        return _refuse(str(error))


def _run(args: argparse.Namespace, module: CommandModule) -> int:
    from agent import config  # noqa: PLC0415  `--help` needs none of it

    loaded = config.load(args.config, os.environ, _given_flags(args))
    logging.basicConfig(
        stream=sys.stderr,
        level=loaded.log_level.upper(),
        format="time=%(asctime)s level=%(levelname)s logger=%(name)s %(message)s",
    )
    return module.run(args, loaded)


def _refuse(text: str) -> int:
    print(f"tailcause-agent: {text}", file=sys.stderr)
    return EXIT_CANNOT_START


def _given_flags(args: argparse.Namespace) -> dict[str, object]:
    keys = (_key(option) for option in OPTIONS)
    return {key: getattr(args, key) for key in keys if hasattr(args, key)}


def _key(option: Option) -> str:
    return option.key or option.flag.removeprefix("--").replace("-", "_").replace(".", "_")


def _parser(
    argv: Sequence[str],
) -> tuple[argparse.ArgumentParser, dict[str, CommandModule]]:
    """Return the parser, with the module of the one command that is named on the line."""
    parser = argparse.ArgumentParser(
        prog="tailcause-agent",
        description="Collects what an inference node does to its requests, and enriches their spans.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    modules: dict[str, CommandModule] = {}
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name,
            help=command.help,
            description=f"{command.help.capitalize()}.",
            epilog=_EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if command.name in argv[:1]:
            modules[command.name] = cast("CommandModule", importlib.import_module(command.module))
            modules[command.name].add_arguments(sub)
            _add_options(sub)
    return parser, modules


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings as TOML")
    for option in OPTIONS:
        given: dict[str, Any] = {"metavar": option.metavar}
        if option.constant:
            given = {"action": "store_const", "const": option.constant}
        parser.add_argument(
            option.flag, dest=_key(option), help=option.help, default=argparse.SUPPRESS, **given
        )


if __name__ == "__main__":
    sys.exit(main())
