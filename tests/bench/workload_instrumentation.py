"""What the server's own instrumentation costs it: spans, their export and the hook, beside the same server without."""

from collections.abc import Mapping, Sequence

from ebpf.hook.library import library_path
from tests.bench.agent_backend import Backend, backend
from tests.bench.agent_process import FailedError
from tests.bench.paired import Estimate, estimate
from tests.bench.rows import Row
from tests.bench.workload_batching import AZURE_SCALE
from tests.bench.workload_client import at_once
from tests.bench.workload_effort import Bench, Effort
from tests.bench.workload_figures import AZURE_CONVERSATION
from tests.bench.workload_server import PLAIN, Server, Variant, all_serving
from tests.bench.workload_traces import Asked, azure

Round = Mapping[str, float]
"""CPU seconds that a server took for the same requests, by its name."""


def instrumentation(bench: Bench, effort: Effort) -> list[Row]:
    """Saturate three servers in turns: with spans and hook, without, and without once more as a control.

    Throughput is per second of CPU: at saturation the server's core does nothing else, and what others take from it counts for nobody.
    """
    asked = azure(AZURE_CONVERSATION, AZURE_SCALE, effort.count)
    with backend() as collector:
        ours = Variant(bench.folder, otlp_url=collector.url)
        plain = Variant(bench.folder, environment=PLAIN)
        with all_serving(bench.core, [ours, plain, plain]) as servers:
            named = dict(zip(("ours", "plain", "again"), servers, strict=True))
            for server in servers:
                at_once(server.url, asked)
            rounds = [_round(named, asked, i) for i in range(effort.rounds)]
        _arrived(collector, (1 + effort.rounds) * len(asked))
    hook = (
        "the hook's library called"
        if library_path()
        else "without the hook's library, which is not built"
    )
    bench.say(f"correct: {collector.span_ids.total()} spans have arrived, each once, {hook}")
    control = _lost(rounds, "again")
    return [
        Row("spans_pct", "throughput lost to spans and hook", "%", _lost(rounds, "ours"), 3.0, control),
        Row("spans_control_pct", "the same by nothing (A/A control)", "%", control),
    ]  # fmt: skip


def _round(servers: Mapping[str, Server], asked: Sequence[Asked], turn: int) -> Round:
    shift = turn % len(servers)
    names = [*servers]
    took: dict[str, float] = {}
    for name in names[shift:] + names[:shift]:
        before_s = servers[name].cpu_s()
        at_once(servers[name].url, asked)
        took[name] = servers[name].cpu_s() - before_s
    return took


def _lost(rounds: Sequence[Round], name: str) -> Estimate:
    def percent(some: Sequence[Round]) -> float:
        losses = sorted(100 * (1 - one["plain"] / one[name]) for one in some)
        middle = len(losses) // 2
        return losses[middle] if len(losses) % 2 else (losses[middle - 1] + losses[middle]) / 2

    return estimate(rounds, percent)


def _arrived(collector: Backend, requests: int) -> None:
    """Check that there was something to pay for: more spans than requests, none of them twice."""
    twice = collector.span_ids.total() - len(collector.span_ids)
    if len(collector.span_ids) < 4 * requests or twice:
        raise FailedError(f"{len(collector.span_ids)} spans of {requests} requests, {twice} twice")
