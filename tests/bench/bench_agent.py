"""What the agent costs on a full node, beside Debian's node exporter: `make bench-agent`.

Correctness first, then start, CPU, spans and memory. Exit codes: 0 within all budgets, 1 a budget is missed or a value
is wrong, 2 cannot start.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench import agent_memory
from tests.bench.agent_backend import Backend, backend
from tests.bench.agent_cost import (
    median_of,
    over_peer,
    scraped,
    slices,
    spans_percent,
)
from tests.bench.agent_memory import FASTER, MB, churned, slope_mb_per_h, watch
from tests.bench.agent_node import CHURNER, Node, Size, node
from tests.bench.agent_process import (
    NODE_EXPORTER,
    FailedError,
    Running,
    agent,
    node_exporter,
    series,
)
from tests.bench.agent_spans import Load, Requests, over_grpc, over_http
from tests.bench.agent_values import Kernel, check_agent, check_peer
from tests.bench.paired import Estimate, of_values
from tests.bench.rows import Row, table
from tests.support.archive import NotThereError, unpacked
from tests.support.probe_session import why_no_probes

SPANS_PER_S = 2000
EXPORT_S = 15.0
PATIENCE_S = 30.0
FAST = ("--interval", f"{1000 // FASTER}ms", "--export-interval", f"{1000 * EXPORT_S / FASTER:g}ms")
_WARM_S = 12.0
"""By then the slow files of every cgroup have been read once more."""
EXAMPLES = """examples:
  python -m tests.bench.bench_agent
  python -m tests.bench.bench_agent --quick --json result.json
"""


@dataclass(frozen=True)
class Effort:
    """How much of everything is measured."""

    starts: int
    exports: int
    scraped: int
    pairs: int
    pair_s: float
    memory_s: float
    slope: float | None
    """The budget of the growth; None where there is no time to warm up, which takes an hour of normal pace."""


FULL = Effort(starts=5, exports=8, scraped=12, pairs=6, pair_s=15.0, memory_s=1200.0, slope=0.1)
QUICK = Effort(starts=3, exports=3, scraped=6, pairs=3, pair_s=10.0, memory_s=180.0, slope=None)


class Bench:
    """The node, the back end, and how an agent is started on them."""

    def __init__(self, on: Node, back: Backend, folder: Path) -> None:
        self.node, self.back = on, back
        self._folder = folder

    @contextmanager
    def agent(self, *flags: str, to: Backend | None = None) -> Iterator[Running]:
        """Run an agent with everything on; the governor takes no probe off, because the budgets are judged here."""
        back = to or self.back
        all_on = ("--ebpf-cuda", "--ebpf-own-budget", "1", "--ebpf-imposed-budget", "1")
        where = ("--forward", back.url, "--gpu-library", str(self.node.gpu_library))
        environment = {
            "FAKENVML_SCENARIO": str(self.node.scenario),
            "TAILCAUSE_STATE": str(self._folder / "state"),
            "PYTHONPYCACHEPREFIX": str(self._folder / "compiled"),  # as installed: compiled once
            "PYTHONDONTWRITEBYTECODE": "",
        }
        log = self._folder / "agent.log"
        with agent((*all_on, *where, *flags), environment, log) as running:
            yield running


def started(bench: Bench, count: int) -> Row:
    """Measure from the start of the process to the first export that arrives."""
    took = [_start_s(bench) for _ in range(1 + count)][1:]  # the first one compiles
    return Row("start_s", "start to first export", "s", of_values(took), 2.5)


def _start_s(bench: Bench) -> float:
    with backend() as fresh:
        began_s = time.monotonic()
        with bench.agent(to=fresh):
            if not fresh.first_metrics.wait(PATIENCE_S):
                raise FailedError(f"no metrics have arrived {PATIENCE_S:g} s after the start")
        return fresh.first_metrics_s - began_s


def correct(bench: Bench, ours: Running, peer: Running) -> None:
    """Check both pages against the kernel and the scenario."""
    before = Kernel.read(bench.node)
    time.sleep(2.5)  # every signal has been collected since
    ours_text, after = ours.scrape(), Kernel.read(bench.node)
    check_agent(ours_text, bench.node, before, after)
    check_peer(peer.scrape())
    size = bench.node.size
    say(
        f"correct: {size.cgroups} cgroups, {size.gpus} GPUs, all probes on;"
        f" {series(ours_text)} series, {bench.back.points()} points an export"
    )


def cost(bench: Bench, effort: Effort, ours: Running, peer: Running) -> list[Row]:
    """Measure CPU as deployed, and scraped beside the node exporter."""
    deployed = [one.percent for one in slices(ours, effort.exports, EXPORT_S)]
    rounds = scraped(ours, peer, effort.scraped, 5.0)
    return [
        Row("cpu_pct", "CPU as deployed", "% of a core", of_values(deployed), 3.0),
        Row("scraped_pct", "CPU, scraped every second", "% of a core", median_of(rounds, lambda r: r.ours.percent)),
        Row("peer_pct", "node exporter, scraped so", "% of a core", median_of(rounds, lambda r: r.peer.percent)),
        Row("series", "series", "", median_of(rounds, lambda r: r.our_series)),
        Row("peer_series", "series of the node exporter", "", median_of(rounds, lambda r: r.peer_series)),
        Row("series_us", "CPU a second and series", "us", median_of(rounds, lambda r: r.ours_us)),
        Row("peer_series_us", "the same of the node exporter", "us", median_of(rounds, lambda r: r.peer_us)),
        Row("series_ratio", "our CPU a series over theirs", "", over_peer(rounds), 0.5),
    ]  # fmt: skip


def spans(bench: Bench, effort: Effort, ours: Running) -> Row:
    """Measure what spans cost that go through; every one must arrive once, with its cgroup."""
    requests = Requests(bench.node.pids[0])
    with over_http(ours.otlp) as send, Load(requests, send, SPANS_PER_S) as load:
        more = spans_percent(ours, load, effort.pairs, effort.pair_s)
        sent = load.sent
    arrived(bench.back, sent)
    say(f"correct: {len(sent)} spans sent, all arrived once and with their cgroup")
    return Row("spans_pct", f"{SPANS_PER_S} spans/s more", "% of a core", of_values(more), 10.0)


def arrived(back: Backend, sent: set[bytes]) -> None:
    """Wait until all spans have arrived; raises `FailedError` for one that is missing, or came twice."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not back.span_ids.keys() >= sent and time.monotonic() < deadline_s:
        time.sleep(0.1)
    twice = [identity for identity in sent if back.span_ids[identity] > 1]
    missing = sent - back.span_ids.keys()
    if missing or twice or back.enriched != back.span_ids.total():
        raise FailedError(
            f"of {len(sent)} spans {len(missing)} are missing and {len(twice)} came twice;"
            f" {back.span_ids.total() - back.enriched} have no cgroup"
        )


def memory(bench: Bench, effort: Effort, ours: Running) -> list[Row]:
    """Measure the level of two agents after a while, and the slope of one that runs faster."""
    with ExitStack() as running:
        with_grpc = running.enter_context(bench.agent())
        fast = running.enter_context(bench.agent("--otlp-grpc-port", "off", *FAST))
        with over_grpc(with_grpc.grpc) as send:
            requests = Requests(bench.node.pids[1])
            with Load(requests, send, SPANS_PER_S) as load:
                load.go(on=True)
                watch({}, 30.0)
                load.go(on=False)
        found = watch({"plain": ours, "grpc": with_grpc, "fast": fast}, effort.memory_s)
    faster = slope_mb_per_h(found["fast"])
    half = (faster.high - faster.low) / 2  # what the level itself moves by; it decides nothing
    noise = Estimate(0.0, -half, half)
    return [
        Row("rss_mb", "resident without gRPC", "MB", last(found["plain"]), 64),
        Row("rss_grpc_mb", "resident with gRPC", "MB", last(found["grpc"]), 80),
        Row(
            "rss_slope",
            f"growth at {FASTER}x, an hour of normal pace",
            "MB",
            faster,
            effort.slope,
            noise,
        ),
    ]


def last(samples: agent_memory.Samples) -> Estimate:
    """Return the level of the last tenth of the time."""
    return of_values([value / MB for _, value in samples[-max(1, len(samples) // 10) :]])


def churn(bench: Bench) -> list[Row]:
    """Measure the resident memory while processes come and go that the agent has to look at by name."""
    with bench.agent("--otlp-grpc-port", "off", "--process-names", CHURNER) as running:
        time.sleep(_WARM_S)
        before = running.rss_bytes() / MB
        resident, count = churned(running, bench.node)
    say(f"{count} processes came and went, {agent_memory.alive_at_once()} of them at a time")
    half = resident[len(resident) // 2 :]
    return [
        Row("churn_mb", "resident while processes churn", "MB", of_values([r / MB for r in half]), 64),
        Row("churn_more_mb", "more than before", "MB", of_values([r / MB - before for r in half])),
    ]  # fmt: skip


def measure(effort: Effort, folder: Path) -> list[Row]:
    """Measure everything, correctness first."""
    with node(Size(), folder) as on, backend() as back, node_exporter() as peer:
        bench = Bench(on, back, folder)
        rows = [started(bench, effort.starts)]
        with bench.agent("--otlp-grpc-port", "off") as ours:
            time.sleep(_WARM_S)
            correct(bench, ours, peer)
            rows += cost(bench, effort, ours, peer)
            rows.append(spans(bench, effort, ours))
            rows += memory(bench, effort, ours)
        return [*rows, *churn(bench)]


def why_not() -> str:
    """Name what is missing here, or nothing."""
    try:
        unpacked(NODE_EXPORTER)
    except NotThereError as exc:
        return str(exc)
    return why_no_probes()


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and judge."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.bench_agent",
        description="Cost of the agent beside the node exporter.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a short form, about ten minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON as well")
    options = parser.parse_args(arguments)
    if lacking := why_not():
        sys.stderr.write(f"bench-agent cannot start: {lacking}\n")
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="tailcause-bench-") as name:
            rows = measure(QUICK if options.quick else FULL, Path(name))
    except FailedError as exc:
        sys.stderr.write(f"bench-agent: {exc}\n")
        return 1
    say(table(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    missed = [row.key for row in rows if row.missed]
    values = " ".join(f"{row.key}={row.value.median:.3g}" for row in rows)
    say(f"bench-agent: {values} missed={','.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
