"""`tailcause-workload load`: open-loop requests at a given rate."""

import argparse
import asyncio
import json
import logging
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernels.load.azure import CONVERSATION, TRACES
from kernels.load.client import Client, Patience
from kernels.load.generator import LoopConfig, OpenLoop
from kernels.load.plan import PlanConfig, plan
from kernels.load.shape import OUTPUT, PROMPT, Target
from kernels.load.source import Lengths, Source, TableSource, read_trace
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
    parser.add_argument("--tenant", metavar="NAME", help="one tenant that sends everything")
    for what, usual in (("prompt", PROMPT), ("output", OUTPUT)):
        parser.add_argument(
            f"--{what}-tokens",
            type=_target,
            default=usual,
            metavar="L:M:H",
            help=f"shortest, median and longest {what} ({usual.low}:{usual.median}:{usual.high})",
        )
    parser.add_argument(
        "--prefix-tokens", type=_count, default=0, metavar="N", help="shared beginning of prompts"
    )
    parser.add_argument(
        "--repeat-share", type=_share, default=0.1, metavar="X", help="of prompts sent before (0.1)"
    )
    parser.add_argument(
        "--timeout", type=duration_s, default=60.0, metavar="60s", help="of an attempt"
    )
    parser.add_argument(
        "--retries", type=_count, default=0, metavar="N", help="attempts after a time-out, at once"
    )
    parser.add_argument("--json", action="store_true", help="JSON lines")
    finish_help(
        parser,
        [
            "load --url http://127.0.0.1:8000 --rate 20 --duration 60s --json",
            "load --url http://127.0.0.1:8000 --trace AzureLLMInferenceTrace_conv.csv",
            "load --url http://127.0.0.1:8000 --rate 2 --prompt-tokens 240:300:380",
            "load --url http://127.0.0.1:8000 --rate 10 --timeout 100ms --retries 5",
        ],
        "0 done, 1 nothing was answered, 2 cannot start",
    )


def run(args: argparse.Namespace) -> int:
    """Send the load; a line each second and one at the end."""
    start_logging()
    lengths = Lengths(args.prompt_tokens, args.output_tokens)
    source: Source
    if args.trace:
        source = read_trace(args.trace, lengths)
    else:
        source = TableSource(TRACES[args.shape], lengths)
    config = PlanConfig(
        rate=args.rate,
        duration_s=args.duration,
        seed=args.seed,
        tenants=args.tenants,
        repeat_share=args.repeat_share,
        tenant=args.tenant,
        prefix_tokens=args.prefix_tokens,
    )
    log.info("load starts rate=%g seed=%d scaling=%s", args.rate, args.seed, source.describe())
    target = _Server(args.url, Patience(args.timeout, args.retries))
    return asyncio.run(_send(target, config, source, as_json=args.json))


@dataclass(frozen=True)
class _Server:
    """Who is asked, and how patiently."""

    url: str
    patience: Patience


async def _send(target: _Server, config: PlanConfig, source: Source, *, as_json: bool) -> int:
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)

    def report(tally: Tally, at_s: float) -> None:
        _print(tally.progress(at_s), as_json=as_json)

    async with Client(target.url, target.patience) as client:
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


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("must be between 0 and 1")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return value


def _target(text: str) -> Target:
    """Read `LOW:MEDIAN:HIGH`."""
    words = text.split(":")
    numbers = [int(word) for word in words if word.isdigit()]
    if len(words) != 3 or len(numbers) != 3 or not 1 <= numbers[0] <= numbers[1] <= numbers[2]:
        raise argparse.ArgumentTypeError(f"{text!r} is not LOW:MEDIAN:HIGH with rising numbers")
    return Target(*numbers)
