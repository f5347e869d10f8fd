"""What the caches and chunked prefill change, on prompts that share what those of the Mooncake conversations share."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise

from kernels.load.tally import quantile
from kernels.workload.settings import Settings
from tests.bench.agent_process import FailedError
from tests.bench.paired import Estimate, estimate, of_values
from tests.bench.rows import Row
from tests.bench.workload_batching import BATCHING, exactly
from tests.bench.workload_client import Run, at_once, at_rate, by_clients
from tests.bench.workload_effort import Bench, Effort
from tests.bench.workload_server import CONTEXT, ROWS, Server
from tests.bench.workload_traces import Asked, Scale, known_share, means, mooncake

SCALE = Scale(32, 32, CONTEXT)
CHUNK_SCALE = Scale(32, 8, CONTEXT)
"""Longer answers: there must be somebody whom a prompt can hold up."""
LOAD = 0.75
"""Share of what the server does at saturation without caches."""
CHUNK = Settings().step_tokens
CLIENTS = 8
"""As many run at any time where chunks are measured: gaps are compared at equal company."""
CACHES: Mapping[str, Mapping[str, str]] = {
    "none": BATCHING[0],
    "prefix": {"prefix_cache": "on"},
    "both": {"prefix_cache": "on", "prompt_cache": "256"},
}
CHUNKS: Mapping[str, Mapping[str, str]] = {
    "chunked": BATCHING[0],
    "whole": {"step_tokens": str(CONTEXT + ROWS)},
}

Turns = Mapping[str, Run]


def caches(bench: Bench, effort: Effort) -> list[Row]:
    """Send the same requests at the same rate to servers without caches, with one and with both."""
    past, *slices = _sliced(
        mooncake(SCALE, effort.count + effort.rate_rounds * effort.at_rate), effort
    )
    bench.say(f"mooncake: {SCALE}: {means(past)}; {LOAD:.0%} of the rate without caches")
    named = dict(zip(CACHES, bench.servers(*CACHES.values()), strict=True))
    # Every server begins with a past, as the trace has one; what the slowest does then is the most.
    took_s = {name: at_once(server.url, past).took_s for name, server in named.items()}
    rate = LOAD * len(past) / took_s["none"]
    before = {name: server.counted() for name, server in named.items()}
    rounds = [
        _turns(named, i, partial(at_rate, asked=some, rate=rate)) for i, some in enumerate(slices)
    ]
    after = {name: server.counted() for name, server in named.items()}
    known = 100 * known_share([one for some in (past, *slices) for one in some], len(past))
    _equal(rounds)
    bench.say("correct: mooncake: all answered, completions equal with and without caches")
    prefix = _hits(before["prefix"], after["prefix"], "vllm:prefix_cache")
    prompt = _hits(before["both"], after["both"], "tailcause_workload_cache")
    return [
        Row("known_pct", "blocks that any cache could find", "%", exactly(known)),
        Row("prefix_hit_pct", "prompt tokens in the prefix cache", "%", prefix),
        Row("prompt_hit_pct", "requests in the prompt cache", "%", prompt),
        Row("cache_rate", "requests a second", "/s", exactly(rate)),
        *(Row(f"cache_{name}_p95", f"P95, caches: {name}", "s", _p95(rounds, name)) for name in CACHES),
        Row("cache_p95_ratio", "P95 with both caches over none", "", estimate(rounds, _gain)),
    ]  # fmt: skip


def _sliced(asked: Sequence[Asked], effort: Effort) -> list[Sequence[Asked]]:
    """Cut one long trace into a past and the rounds: each goes on where the last one ended."""
    edges = [0, *range(effort.count, len(asked) + 1, effort.at_rate)]
    return [asked[start:end] for start, end in pairwise(edges)]


def _turns(servers: Mapping[str, Server], turn: int, run: Callable[[str], Run]) -> Turns:
    shift = turn % len(servers)
    order = [*servers][shift:] + [*servers][:shift]
    return {name: run(servers[name].url) for name in order}


def _equal(rounds: Sequence[Turns]) -> None:
    for turns in rounds:
        first, *others = ([one.text for one in run.replies] for run in turns.values())
        if any(one != first for one in others):
            raise FailedError(f"completions differ between {', '.join(turns)}")


def _hits(before: Mapping[str, float], after: Mapping[str, float], name: str) -> Estimate:
    hits, queries = (
        after[f"{name}_{kind}_total"] - before[f"{name}_{kind}_total"]
        for kind in ("hits", "queries")
    )
    return exactly(100 * hits / queries)


def _late(rounds: Sequence[Turns], name: str, level: float) -> float:
    return quantile(sorted(t for one in rounds for t in one[name].totals_s), level) or 0.0


def _p95(rounds: Sequence[Turns], name: str) -> Estimate:
    return estimate(rounds, lambda some: _late(some, name, 0.95))


def _gain(rounds: Sequence[Turns]) -> float:
    return _late(rounds, "both", 0.95) / _late(rounds, "none", 0.95)


def chunking(bench: Bench, effort: Effort) -> list[Row]:
    """Send long prompts among those who decode, to a server that cuts them into chunks and to one that does not."""
    bench.say(
        f"mooncake, longer answers: {CHUNK_SCALE}, {CLIENTS} clients, steps of {CHUNK} tokens and whole prompts"
    )
    named = dict(zip(CHUNKS, bench.servers(*CHUNKS.values()), strict=True))
    for server in named.values():
        by_clients(server.url, mooncake(CHUNK_SCALE, effort.count, seed=7), CLIENTS)
    seeds = range(100, 100 + effort.rate_rounds)
    drawn = [mooncake(CHUNK_SCALE, effort.at_rate, seed) for seed in seeds]
    rounds = [
        _turns(named, i, partial(by_clients, asked=some, clients=CLIENTS))
        for i, some in enumerate(drawn)
    ]
    _equal(rounds)
    bench.say("correct: completions equal with and without chunks")
    return [
        *(Row(f"gap_{name}_ms", f"P99 between tokens, {name}", "ms", _gap(rounds, name)) for name in CHUNKS),
        Row("gap_ratio", "P99 between tokens, chunked over whole", "", estimate(rounds, _less)),
        *(Row(f"ttft_{name}_s", f"P99 to the first token, {name}", "s", _first(rounds, name)) for name in CHUNKS),
    ]  # fmt: skip


def _gaps_ms(rounds: Sequence[Turns], name: str) -> float:
    gaps = sorted(gap for one in rounds for reply in one[name].replies for gap in reply.gaps_s)
    return 1000 * (quantile(gaps, 0.99) or 0.0)


def _gap(rounds: Sequence[Turns], name: str) -> Estimate:
    return estimate(rounds, lambda some: _gaps_ms(some, name))


def _less(rounds: Sequence[Turns]) -> float:
    return _gaps_ms(rounds, "chunked") / _gaps_ms(rounds, "whole")


def _first(rounds: Sequence[Turns], name: str) -> Estimate:
    values = [
        quantile(sorted(reply.first_s for reply in one[name].replies), 0.99) or 0.0
        for one in rounds
    ]
    return of_values(values)
