"""`tailcause-workload balance`: one address before several replicas."""

import argparse
import asyncio
import json
import sys
from urllib.parse import urlsplit

from kernels.balancer.balancer import Options, balance
from kernels.workload import logs

EPILOG = """examples:
  tailcause-workload balance --port 8000 --backend a=http://127.0.0.1:8001 --backend b=http://127.0.0.1:8002
  tailcause-workload up --state /tmp/chat --replicas 3      starts replicas and balancer together

exit codes: 0 stopped and drained, 2 cannot start
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `balance`."""
    parser.epilog = EPILOG
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--port", type=int, default=8000, help="port, 0 for any free one (8000)")
    where.add_argument("--listen-fd", type=int, metavar="N", help="inherited listening socket")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument(
        "--backend",
        type=_backend,
        action="append",
        required=True,
        metavar="NAME=URL",
        help="a replica, repeatable",
    )


def run(args: argparse.Namespace) -> int:
    """Balance until told to stop."""
    logs.configure()
    options = Options(args.host, args.port, args.listen_fd, args.backend)
    return asyncio.run(balance(options, _announce))


def _backend(text: str) -> tuple[str, str]:
    name, _, url = text.partition("=")
    parts = urlsplit(url)
    if not name or parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/"):
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=http://HOST:PORT")
    return name, url


def _announce(pid: int, port: int) -> None:
    sys.stdout.write(json.dumps({"event": "ready", "pid": pid, "port": port}) + "\n")
    sys.stdout.flush()
