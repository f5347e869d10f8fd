"""`tailcause-workload serve`: one server process."""

import argparse
import asyncio
import resource
import sys
from pathlib import Path

import msgspec

from kernels.workload import logs
from kernels.workload.cache import default_cache_dir
from kernels.workload.lifecycle import Options, Ready, serve
from kernels.workload.settings import Settings, as_text, parse
from kernels.workload.tracing import Identity

EPILOG = """settings (--set KEY=VALUE):
{settings}

examples:
  tailcause-workload serve --port 8000
  tailcause-workload serve --port 8000 --otlp http://127.0.0.1:4318 --set max_running=4
  curl -N http://127.0.0.1:8000/v1/completions -d '{{"prompt": "Hello", "stream": true}}'

exit codes: 0 stopped and drained, 1 the engine failed, 2 cannot start
"""
SWITCH_INTERVAL_S = 0.001


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `serve`."""
    defaults = as_text(Settings()).items()
    parser.epilog = EPILOG.format(
        settings="\n".join(f"  {name}={value}" for name, value in defaults)
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--port", type=int, default=8000, help="port, 0 for any free one (8000)")
    where.add_argument("--listen-fd", type=int, metavar="N", help="inherited listening socket")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--service", default="chat", help="service.name of the spans (chat)")
    parser.add_argument(
        "--instance", default="", help="replica name, kept across deploys (SERVICE-0)"
    )
    parser.add_argument("--model", default="tailcause-tiny", help="model name (tailcause-tiny)")
    parser.add_argument("--revision", default="0" * 40, help="Git SHA that is served")
    parser.add_argument("--version", default="0.0.0", help="version that is served (0.0.0)")
    parser.add_argument("--otlp", default="", metavar="URL", help="where spans go; none: nowhere")
    parser.add_argument("--cache", type=Path, default=None, metavar="DIR", help="for built files")
    parser.add_argument("--hook", type=Path, metavar="SOCKET", help="let faults reach in (off)")
    parser.add_argument(
        "--weights", default="", metavar="FILE", help="trained weights (--set weights=)"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting")


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    settings = parse([*args.set, *([f"weights={args.weights}"] if args.weights else [])])
    logs.configure()
    # A thread that holds the interpreter lock gives way after this long (default 5 ms): with steps of
    # about a millisecond, the default would show up as the engine's own tail.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _allow_connections()
    options = Options(
        identity=Identity(
            service=args.service,
            instance=args.instance or f"{args.service}-0",
            model=args.model,
            version=args.version,
            revision=args.revision,
        ),
        host=args.host,
        port=args.port,
        listen_fd=args.listen_fd,
        otlp_url=args.otlp,
        cache_dir=args.cache or default_cache_dir(),
        hook=args.hook,
    )
    return asyncio.run(serve(options, settings, _announce))


def _allow_connections() -> None:
    """Use all the descriptors that we may have: at the usual soft limit of 1024 a flood of clients keeps others out."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _announce(ready: Ready) -> None:
    sys.stdout.write(msgspec.json.encode(ready).decode() + "\n")
    sys.stdout.flush()
