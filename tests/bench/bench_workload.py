"""What batching, caches, chunks and spans do to the served model: `make bench-workload`.

Requests have the shapes of public traces and come over HTTP; the server has one core, its clients another. Answers are
compared before times are. Exit codes: 0 within all budgets, 1 a budget is missed or an answer is wrong, 2 cannot start.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.agent_process import FailedError
from tests.bench.rows import Row, table
from tests.bench.workload_batching import padding, saturation, tail
from tests.bench.workload_caches import caches, chunking
from tests.bench.workload_effort import Bench, Effort
from tests.bench.workload_figures import AZURE_CODE, AZURE_CONVERSATION
from tests.bench.workload_instrumentation import instrumentation
from tests.bench.workload_plot import svg
from tests.bench.workload_server import cores

EXAMPLES = """examples:
  python -m tests.bench.bench_workload
  python -m tests.bench.bench_workload --quick --json result.json --plot result.svg
  python -m tests.bench.bench_workload --only caches --only chunking
"""
Measure = Callable[[Bench, Effort], list[Row]]


@dataclass(frozen=True)
class Part:
    """Something to measure, with the effort of a full run and of a quick one; None leaves it out."""

    measure: Measure
    full: Effort
    quick: Effort | None


PARTS: Mapping[str, Part] = {
    "conversation": Part(
        lambda bench, effort: saturation(bench, AZURE_CONVERSATION, effort),
        Effort(count=128, rounds=3),
        Effort(count=64),
    ),
    "code": Part(
        lambda bench, effort: saturation(bench, AZURE_CODE, effort),
        Effort(count=128, rounds=3),
        Effort(count=40),
    ),
    "conversation-tail": Part(
        lambda bench, effort: tail(bench, AZURE_CONVERSATION, effort),
        Effort(count=64, at_rate=100, rate_rounds=2),
        Effort(count=32, at_rate=24, rate_rounds=1),
    ),
    "code-tail": Part(
        lambda bench, effort: tail(bench, AZURE_CODE, effort),
        Effort(count=64, at_rate=100, rate_rounds=2),
        None,
    ),
    "padding": Part(
        lambda bench, effort: padding(bench, AZURE_CONVERSATION, effort.count),
        Effort(count=128),
        Effort(count=16),
    ),
    "caches": Part(
        caches,
        Effort(count=128, at_rate=96, rate_rounds=2),
        Effort(count=32, at_rate=24, rate_rounds=1),
    ),
    "chunking": Part(
        chunking,
        Effort(count=16, at_rate=100, rate_rounds=4),
        Effort(count=8, at_rate=24, rate_rounds=1),
    ),
    "instrumentation": Part(
        instrumentation, Effort(count=32, rounds=24), Effort(count=16, rounds=3)
    ),
}


def measure(names: Sequence[str], bench: Bench, *, quick: bool) -> list[Row]:
    """Measure the parts, one after the other."""
    rows: list[Row] = []
    for part in (PARTS[name] for name in names):
        effort = part.quick if quick else part.full
        rows += part.measure(bench, effort) if effort else []
    return rows


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    made = argparse.ArgumentParser(
        prog="python -m tests.bench.bench_workload",
        description="Batching, caches, chunked prefill and instrumentation of the served model.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--quick", action="store_true", help="fewer requests, about 90 seconds")
    made.add_argument("--only", action="append", choices=PARTS, help="this part alone; repeatable")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON as well")
    made.add_argument("--plot", type=Path, metavar="FILE", help="draw the latencies as SVG")
    return made


def write(options: argparse.Namespace, rows: Sequence[Row], bench: Bench) -> None:
    """Write the files that were asked for."""
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    if options.plot:
        title = "Latency at the highest rate that static batching sustains"
        options.plot.write_text(svg(title, bench.curves))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and judge."""
    options = parser().parse_args(arguments)
    try:
        servers, clients = cores()
    except FailedError as exc:
        sys.stderr.write(f"bench-workload cannot start: {exc}\n")
        return 2
    os.sched_setaffinity(0, {clients})
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tailcause-bench-") as name,
            ExitStack() as running,
        ):
            bench = Bench(servers, Path(name), running, say)
            rows = measure(options.only or [*PARTS], bench, quick=options.quick)
    except FailedError as exc:
        sys.stderr.write(f"bench-workload: {exc}\n")
        return 1
    if options.quick:
        say("quick: mostly one round of each, so that intervals say little")
    say(table(rows))
    write(options, rows, bench)
    missed = [row.key for row in rows if row.missed]
    values = " ".join(f"{row.key}={row.value.median:.3g}" for row in rows)
    say(f"bench-workload: {values} missed={','.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
