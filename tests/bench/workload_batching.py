"""Batching policies on the same requests: throughput at saturation, P99 at the highest rate of the slower one, padding."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernels.load.tally import quantile
from kernels.workload.settings import Batching
from tests.bench.agent_process import FailedError
from tests.bench.paired import Estimate, estimate, of_values
from tests.bench.rows import Row
from tests.bench.workload_client import Run, at_once, at_rate
from tests.bench.workload_effort import Bench, Effort
from tests.bench.workload_figures import Lengths
from tests.bench.workload_server import CONTEXT, ROWS, Server
from tests.bench.workload_traces import Asked, Scale, azure, means

AZURE_SCALE = Scale(8, 4, CONTEXT)
BATCHING = ({"batching": "continuous"}, {"batching": "static"})
LADDER = (0.95, 0.85, 0.75, 0.65, 0.55, 0.45)
"""Rates that are tried, as shares of what the slower policy does at saturation."""
WAITING_BATCHES = 1
"""A rate is sustained while no more than this waits behind the running batch when the last request departs."""


@dataclass(frozen=True)
class Both:
    """The same requests under continuous and static batching."""

    continuous: Run
    static: Run

    @property
    def throughput(self) -> float:
        """How many times as many tokens a second continuous batching makes while nothing is short of work."""
        return self.continuous.saturated(ROWS) / self.static.saturated(ROWS)


def saturation(bench: Bench, trace: Lengths, effort: Effort) -> list[Row]:
    """Send everything at once, under continuous and static batching in turns."""
    key = trace.name.split()[1]
    asked = azure(trace, AZURE_SCALE, effort.count)
    bench.say(f"{trace.name}: {AZURE_SCALE}: {means(asked)}, {ROWS} rows")
    continuous, static = bench.servers(*BATCHING)
    for server in (continuous, static):
        at_once(server.url, asked[:ROWS])  # the runtime's memory has grown
    rounds = [_at_once(continuous, static, asked, i) for i in range(effort.rounds)]
    _equal(rounds)
    bench.say(f"correct: {key}: all answered, completions equal under both policies")
    throughput = of_values([one.throughput for one in rounds])
    return [
        Row(f"{key}_throughput", f"{key}: continuous over static", "x", throughput, at_least=2.5)
    ]


def tail(bench: Bench, trace: Lengths, effort: Effort) -> list[Row]:
    """Send requests at the highest rate that static batching sustains, to both in turns."""
    key = trace.name.split()[1]
    continuous, static = bench.servers(*BATCHING)
    asked = azure(trace, AZURE_SCALE, effort.count)
    most = len(asked) / at_once(static.url, asked).took_s
    rate = _sustained(static, most, azure(trace, AZURE_SCALE, effort.at_rate, seed=2))
    drawn = [azure(trace, AZURE_SCALE, effort.at_rate, 100 + i) for i in range(effort.rate_rounds)]
    at = [_at_rate(continuous, static, some, rate) for some in drawn]
    _equal(at)
    bench.say(
        f"correct: {key}: {effort.at_rate * effort.rate_rounds} at {rate:.3g}/s, completions equal"
    )
    bench.curves[f"{key}, continuous"] = [t for one in at for t in one.continuous.totals_s]
    bench.curves[f"{key}, static"] = [t for one in at for t in one.static.totals_s]
    return [
        Row(f"{key}_rate", f"{key}: rate that static sustains", "/s", exactly(rate)),
        Row(f"{key}_static_p99", f"{key}: P99 of static there", "s", _p99(at, lambda one: one.static)),
        Row(f"{key}_p99", f"{key}: P99 of continuous there", "s", _p99(at, lambda one: one.continuous)),
        Row(f"{key}_p99_ratio", f"{key}: P99 over that of static", "", estimate(at, _ratio), 0.5),
    ]  # fmt: skip


def _at_once(continuous: Server, static: Server, asked: Sequence[Asked], turn: int) -> Both:
    """Saturate both, one after the other, in an order that changes."""
    if turn % 2 == 0:
        return Both(at_once(continuous.url, asked), at_once(static.url, asked))
    slower = at_once(static.url, asked)
    return Both(at_once(continuous.url, asked), slower)


def _at_rate(continuous: Server, static: Server, asked: Sequence[Asked], rate: float) -> Both:
    return Both(at_rate(continuous.url, asked, rate), at_rate(static.url, asked, rate))


def _sustained(static: Server, most: float, asked: Sequence[Asked]) -> float:
    """Find the highest rate of the ladder at which static batching does not build up a queue."""
    for share in LADDER:
        run = at_rate(static.url, asked, share * most)
        if run.left_at_the_end <= (1 + WAITING_BATCHES) * ROWS:
            return share * most
    raise FailedError(f"static batching sustains less than {LADDER[-1]} of its own throughput")


def _equal(rounds: Sequence[Both]) -> None:
    """Check that both policies gave the same completions."""
    for one in rounds:
        pairs = zip(one.continuous.replies, one.static.replies, strict=True)
        different = sum(ours.text != theirs.text for ours, theirs in pairs)
        if different:
            raise FailedError(f"{different} completions differ between the policies")


def _p99(at: Sequence[Both], run: Callable[[Both], Run]) -> Estimate:
    return estimate(at, lambda some: late(some, run, 0.99))


def _ratio(at: Sequence[Both]) -> float:
    return late(at, lambda one: one.continuous, 0.99) / late(at, lambda one: one.static, 0.99)


def late(at: Sequence[Both], run: Callable[[Both], Run], level: float) -> float:
    """Return a quantile of the latencies of some runs together."""
    return quantile(sorted(t for one in at for t in run(one).totals_s), level) or 0.0


def padding(bench: Bench, trace: Lengths, count: int) -> list[Row]:
    """Measure what each policy computes for nobody: rows times width of every call, against what somebody waits for."""
    asked = azure(trace, AZURE_SCALE, count)
    texts: list[list[str]] = []
    rows = []
    for policy in Batching:
        (server,) = bench.servers({"batching": policy})
        before = server.counted()
        texts.append([one.text for one in at_once(server.url, asked).replies])
        rows.append(_waste(policy, before, server.counted()))
    if any(one != texts[0] for one in texts):
        raise FailedError("completions differ between the policies")
    bench.say("correct: completions equal under all policies")
    return rows


def _waste(policy: str, before: Mapping[str, float], after: Mapping[str, float]) -> Row:
    names = [f"tailcause_workload_{kind}_tokens_total" for kind in ("computed", "useful")]
    computed, useful = (after[name] - before[name] for name in names)
    percent = 100 * (1 - useful / computed)
    return Row(f"padding_{policy}_pct", f"computed for nobody, {policy}", "%", exactly(percent))


def exactly(value: float) -> Estimate:
    """Wrap what was counted and not sampled."""
    return Estimate(value, value, value)
