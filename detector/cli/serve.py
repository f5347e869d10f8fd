"""`tailcause serve`: the detector as a service."""

import argparse
import asyncio
from pathlib import Path

from detector import config
from detector.cli import options
from detector.errors import ConfigError

_EPILOG = """\
examples:
  tailcause serve                                   OTLP on 14317 and 14318, page on http://127.0.0.1:8790
  tailcause serve --window 5s --state /var/tmp/tc   wider windows, another state folder
  tailcause serve --set decision.min_ratio=2        only what at least doubles the P99

Prints one JSON line {"event":"ready",...} on stdout when it listens; SIGTERM writes what is in
memory and ends it. Settings: --config FILE (TOML) < environment TAILCAUSE_DETECTOR_SECTION_KEY < flags.
exit codes: 0 stopped, 2 cannot start
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = _EPILOG
    options.add_state(parser)
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings as TOML")
    parser.add_argument("--otlp-port", type=int, metavar="PORT", help="OTLP/HTTP (default: 14318)")
    parser.add_argument(
        "--otlp-grpc-port", metavar="PORT", help="OTLP/gRPC (default: 14317); off: none"
    )
    parser.add_argument("--api-port", type=int, metavar="PORT", help="API, page (default: 8790)")
    parser.add_argument(
        "--window", type=options.duration_s, metavar="2s", help="width of a window (default: 2s)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="any setting"
    )
    parser.add_argument("--verbose", action="store_true", help="log debug events")


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    settings = config.from_environment(_flags(args), args.config)
    options.log_to_stderr(verbose=args.verbose)
    from detector.rca.engine import analyse  # noqa: PLC0415  heavy, and a bad setting needs none
    from detector.service import Surroundings, serve  # noqa: PLC0415

    around = Surroundings(state=args.state, analyse=analyse, announce=_announce)
    asyncio.run(serve(settings, around))
    return 0


def _announce(line: str) -> None:
    print(line, flush=True)


def _flags(args: argparse.Namespace) -> list[tuple[str, object]]:
    named = {
        "otlp_port": args.otlp_port,
        "otlp_grpc_port": args.otlp_grpc_port,
        "api_port": args.api_port,
        "series.window_s": args.window,
    }
    return [
        *((key, value) for key, value in named.items() if value is not None),
        *(_pair(text) for text in args.set),
    ]


def _pair(text: str) -> tuple[str, object]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text!r}: write SECTION.KEY=VALUE")
    return key.strip(), value.strip()
