"""`tailcause-workload deploy`: replace the server of a running workload without losing requests."""

import argparse
import sys

import msgspec

from kernels.supervisor.arguments import add_settings, add_state, finish_help
from kernels.supervisor.control import DeployRequest, ask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `deploy`."""
    add_state(parser)
    parser.add_argument("--revision", required=True, metavar="SHA", help="revision to deploy")
    parser.add_argument("--version", required=True, help="service version to deploy")
    add_settings(parser)
    finish_help(
        parser,
        [
            "deploy --state /tmp/chat --revision 8c1f…e2 --version 1.1.0",
            "deploy --state /tmp/chat --revision 8c1f…e2 --version 1.1.0 --set batching=static",
        ],
        "0 deployed, 2 refused or no workload; what ran before then still runs",
    )


def run(args: argparse.Namespace) -> int:
    """Deploy and print when each server took requests, as JSON."""
    request = DeployRequest(args.revision, args.version, dict(args.settings))
    reply = ask(args.state, request)
    sys.stdout.write(msgspec.json.encode(reply).decode() + "\n")
    return 0
