"""What the probes cost, beside the tools that people use today: `make bench-ebpf`.

Correctness first, then cost per event, then a program's slowdown from end to end. Exit codes: 0 within all budgets,
1 a budget is missed or a count is wrong, 2 cannot start.
"""

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice, permutations
from pathlib import Path

from ebpf.libbpf import Library
from ebpf.registry import PROBES
from tests.bench.ebpf_cost import (
    DirectReads,
    SpanLoop,
    WrongCountError,
    biolatency_ns,
    block_io_ns,
    runqlat_ns,
    switch_ns,
)
from tests.bench.ebpf_end_to_end import (
    PRIME,
    Slowdown,
    WorkloadEvents,
    check_counts,
    one_round,
    slowdown,
    workload_events,
)
from tests.bench.ebpf_workload import workload_slowdown
from tests.bench.paired import Estimate, estimate, of_values
from tests.bench.peers import Pipe, missing
from tests.bench.rows import Row, table
from tests.support.probe_session import why_no_probes

CPU = max(os.sched_getaffinity(0))
DISK_MB = 32
EXAMPLES = """examples:
  python -m tests.bench.bench_ebpf
  python -m tests.bench.bench_ebpf --quick --json result.json
"""


@dataclass(frozen=True)
class Effort:
    """How much of everything is measured."""

    rounds: int
    pairs: int
    loops: int
    reads: int
    spans: int
    workload_s: float
    workload_pairs: int
    requests: int


FULL = Effort(
    rounds=18, pairs=60, loops=50_000, reads=997, spans=4999, workload_s=10.0, workload_pairs=24, requests=40
)  # fmt: skip
QUICK = Effort(
    rounds=6, pairs=30, loops=30_000, reads=499, spans=4999, workload_s=5.0, workload_pairs=6, requests=20
)  # fmt: skip


def per_event(effort: Effort, library: Library) -> list[Row]:
    """Measure the switch program and runqlat in turns, in an order that changes."""
    pipe = Pipe(CPU, effort.loops, threaded=True)
    turns: Mapping[str, Callable[[], float]] = {
        "off": lambda: switch_ns(pipe, ledger=False),
        "on": lambda: switch_ns(pipe, ledger=True),
        "runqlat": lambda: runqlat_ns(pipe, library),
    }
    rounds = interleaved(effort.rounds, turns)
    off, on, peer = ([one[name] for one in rounds] for name in turns)
    ratio = estimate(rounds, lambda some: middle(some, "off") / middle(some, "runqlat"))
    return [
        Row("switch_ns", "context switch, ledger off", "ns", of_values(off), 250),
        Row("ledger_ns", "context switch, ledger on", "ns", of_values(on), 450),
        Row("runqlat_ns", "runqlat, wake-up + switch", "ns", of_values(peer)),
        Row("switch_ratio", "context switch over runqlat", "", ratio, 0.25),
    ]


def block_io(effort: Effort, library: Library, folder: Path) -> list[Row]:
    """Measure the block I/O probe and biolatency in turns, on the same reads, and our probe once more as a control."""
    path = folder / "disk"
    path.write_bytes(os.urandom(DISK_MB << 20))
    with path.open("rb") as file:
        os.fsync(file.fileno())
    reads = DirectReads(path, effort.reads)
    rounds = interleaved(
        effort.rounds,
        {
            "ours": lambda: block_io_ns(reads),
            "peer": lambda: biolatency_ns(reads, library),
            "again": lambda: block_io_ns(reads),
        },
    )
    ratio = estimate(rounds, lambda some: middle(some, "ours") / middle(some, "peer"))
    control = estimate(rounds, lambda some: middle(some, "again") / middle(some, "ours"))
    return [
        Row("blkio_ns", "block request", "ns", of_values([r["ours"] for r in rounds])),
        Row("biolatency_ns", "biolatency", "ns", of_values([r["peer"] for r in rounds])),
        Row("blkio_ratio", "block request over biolatency", "", ratio, 1.0),
        Row("blkio_control", "block request over itself (A/A control)", "", control),
    ]


def spans(effort: Effort, folder: Path) -> list[Row]:
    """Measure a span, the two traps included: a loop of them with and without."""
    loop = SpanLoop(folder, effort.spans)
    rounds = interleaved(effort.rounds, {"with": loop.with_us, "without": loop.without_us})
    extra = of_values([one["with"] - one["without"] for one in rounds])
    return [Row("span_us", "span, two traps included", "us", extra, 3.0)]


def end_to_end(effort: Effort, library: Library) -> tuple[list[Row], Slowdown]:
    """Measure how much slower `perf bench sched pipe` is."""
    pipe = Pipe(CPU, effort.loops)
    said = slowdown([one_round(pipe, library) for _ in range(effort.pairs)])
    return [
        Row("pipe_pct", "perf bench sched pipe, slowed by", "%", said.ours.scaled(100), 7.0),
        Row("runqlat_pct", "the same by runqlat", "%", said.runqlat.scaled(100)),
        Row("control_pct", "the same by nothing (A/A control)", "%", said.control.scaled(100)),
        Row("pipe_share", "our slowdown over runqlat's", "", said.share, 0.25),
    ], said


def workload(effort: Effort, so_far: Mapping[str, Estimate]) -> tuple[Row, WorkloadEvents]:
    """Calculate what the served model loses: events per second times what one costs, of its own CPU time."""
    events = workload_events(effort.workload_s)
    ledger, span = so_far["ledger_ns"], so_far["span_us"]
    lost = Estimate(
        100 * events.cost(ledger.median, span.median),
        100 * events.cost(ledger.low, span.low),
        100 * events.cost(ledger.high, span.high),
    )
    return Row("workload_pct", "CPU time of the served model", "%", lost, 1.0), events


def workload_paired(effort: Effort) -> list[Row]:
    """Measure what the served model's requests cost it with all probes, beside the same without."""
    said = workload_slowdown(effort.workload_pairs, effort.requests)
    ours, control = said.ours.scaled(100), said.control.scaled(100)
    return [
        Row("served_pct", "CPU time of its requests, paired runs", "%", ours, 1.0, control),
        Row("served_control_pct", "the same by nothing (A/A control)", "%", control),
    ]


def interleaved(count: int, turns: Mapping[str, Callable[[], float]]) -> list[dict[str, float]]:
    """Take turns, in every order equally often as far as the count allows."""
    orders = list(permutations(turns))
    random.Random(count).shuffle(orders)
    return [{name: turns[name]() for name in order} for order in islice(cycle(orders), count)]


def middle(rounds: Sequence[Mapping[str, float]], name: str) -> float:
    """Return the median of one of the turns."""
    values = sorted(one[name] for one in rounds)
    return values[len(values) // 2]


def measure(effort: Effort) -> list[Row]:
    """Measure everything, correctness first."""
    library = Library()
    counted = check_counts(CPU)
    say(f"correct: {counted} switches in {PRIME} rounds of ping-pong, as the kernel counts them")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        rows = per_event(effort, library)
        rows += spans(effort, Path(name))
        if "blkio" in PROBES:
            rows += block_io(effort, library, Path(name))
    more, _ = end_to_end(effort, library)
    rows += more
    row, events = workload(effort, {one.key: one.value for one in rows})
    say(
        f"the served model: {events.switches_per_s:.0f} switches and {events.spans_per_s:.0f} spans"
        f" a second, {events.cpu_share:.2f} CPU"
    )
    return [*rows, row, *workload_paired(effort)]


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and judge."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.bench_ebpf",
        description="Cost of the probes beside runqlat and biolatency.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, at most a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON as well")
    options = parser.parse_args(arguments)
    lacking = why_no_probes() or ", ".join(f"needs {t}: install {p}" for t, p in missing().items())
    if lacking:
        sys.stderr.write(f"bench-ebpf cannot start: {lacking}\n")
        return 2
    try:
        rows = measure(QUICK if options.quick else FULL)
    except WrongCountError as exc:
        sys.stderr.write(f"bench-ebpf: wrong count: {exc}\n")
        return 1
    say(table(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    missed = [row.key for row in rows if row.missed]
    values = " ".join(f"{row.key}={row.value.median:.3g}" for row in rows)
    say(f"bench-ebpf: {values} missed={','.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
