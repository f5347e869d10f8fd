"""`tailcause-workload load`: open-loop requests at a given rate."""

import argparse
import asyncio
import json
import logging
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from kernels.load.azure import CONVERSATION, TRACES
from kernels.load.client import Client
from kernels.load.generator import LoopConfig, OpenLoop
from kernels.load.plan import PlanConfig, plan
from kernels.load.source import Source, TableSource, read_trace
from kernels.load.tally import Tally
from kernels.supervisor.arguments import duration_s, finish_help, start_logging

log = logging.getLogger(__name__)

NOTHING_ANSWERED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `load`."""
    parser.add_argument("--url", required=True, help="base URL of the server")
    parser.add_argument("--rate", type=_positive, default=20.0, help="mean requests per second")
    parser.add_argument("--duration", type=duration_s, default=60.0, metavar="60s", help="how long")
    parser.add_argument("--seed", type=int, default=0, help="the same seed sends the same requests")
    parser.add_argument(
        "--shape", choices=sorted(TRACES), default=CONVERSATION.name, help="trace to draw from"
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="replay this CSV or .csv.gz")
    parser.add_argument("--tenants", type=int, default=200, help="how many tenants the server has")
    parser.add_argument("--json", action="store_true", help="JSON lines")
    finish_help(
        parser,
        [
            "load --url http://127.0.0.1:8000 --rate 20 --duration 60s --json",
            "load --url http://127.0.0.1:8000 --trace AzureLLMInferenceTrace_conv.csv",
        ],
        "0 done, 1 nothing was answered, 2 cannot start",
    )


def run(args: argparse.Namespace) -> int:
    """Send the load; a line each second and one at the end."""
    start_logging()
    source: Source = read_trace(args.trace) if args.trace else TableSource(TRACES[args.shape])
    config = PlanConfig(args.rate, args.duration, args.seed, args.tenants)
    log.info("load starts rate=%g seed=%d scaling=%s", args.rate, args.seed, source.describe())
    return asyncio.run(_send(args.url, config, source, as_json=args.json))


async def _send(url: str, config: PlanConfig, source: Source, *, as_json: bool) -> int:
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)

    def report(tally: Tally, at_s: float) -> None:
        _print(tally.progress(at_s), as_json=as_json)

    async with Client(url) as client:
        await client.check()
        loop = OpenLoop(client, LoopConfig(), report)
        await loop.run(plan(config, source), stop)
    summary = {"seed": config.seed, "rate": config.rate, **source.describe()}
    _print({"event": "done", **loop.tally.summary(), **summary}, as_json=as_json)
    return 0 if loop.tally.counts()["ok"] else NOTHING_ANSWERED


def _print(fields: Mapping[str, object], *, as_json: bool) -> None:
    words = json.dumps(fields) if as_json else " ".join(f"{k}={v}" for k, v in fields.items())
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return value
