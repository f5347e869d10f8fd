"""Metrics of inference servers, scraped from their own pages and named alike."""

from agent.telemetry.keys import (
    FINISH_REASON,
    GEN_AI_MODEL,
    GEN_AI_PROVIDER,
    NAMESPACE,
    OUTCOME,
    POD_NAME,
    SERVER_ADDRESS,
    SERVER_ENGINE,
    SERVER_LATENCY,
    SERVER_PHASE,
    SERVER_PORT,
    SERVER_QUANTILE,
    SERVER_THRESHOLD,
)
from agent.telemetry.metric import Kind, Metric

TARGET = (SERVER_ADDRESS, SERVER_PORT, GEN_AI_PROVIDER, POD_NAME, NAMESPACE)
_MODEL = (*TARGET, GEN_AI_MODEL, SERVER_ENGINE)


def _time(name: str, text: str) -> Metric:
    return Metric(f"tailcause.server.{name}", "s", Kind.HISTOGRAM, text, _MODEL)


METRICS: tuple[Metric, ...] = (
    Metric(
        "tailcause.server.up",
        "1",
        Kind.GAUGE,
        "1 when an inference server's page was read the last time, else 0.",
        TARGET,
    ),
    Metric(
        "tailcause.server.scrapes",
        "{scrape}",
        Kind.COUNTER,
        "Attempts to read an inference server's page, by what they came to.",
        (*TARGET, OUTCOME),
    ),
    Metric(
        "tailcause.server.requests.running",
        "{request}",
        Kind.UP_DOWN,
        "Requests in the running batch.",
        _MODEL,
    ),
    Metric(
        "tailcause.server.requests.waiting",
        "{request}",
        Kind.UP_DOWN,
        "Requests that wait for a place in the batch.",
        _MODEL,
    ),
    Metric(
        "tailcause.server.requests.swapped",
        "{request}",
        Kind.UP_DOWN,
        "Requests whose KV cache was moved to the CPU (vLLM before its V1 engine).",
        _MODEL,
    ),
    Metric(
        "tailcause.server.requests.finished",
        "{request}",
        Kind.COUNTER,
        "Requests that have ended, by reason; without one where the server counts them together.",
        (*_MODEL, FINISH_REASON),
    ),
    Metric(
        "tailcause.server.kv_cache.utilization",
        "1",
        Kind.GAUGE,
        "Share of the KV cache that is in use.",
        _MODEL,
    ),
    Metric(
        "tailcause.server.preemptions",
        "{preemption}",
        Kind.COUNTER,
        "Requests that lost their place in the batch because the KV cache was full.",
        _MODEL,
    ),
    Metric(
        "tailcause.server.prefix_cache.queries",
        "{lookup}",
        Kind.COUNTER,
        "What was looked up in the prefix cache, in the server's own measure: tokens or blocks.",
        _MODEL,
    ),
    Metric(
        "tailcause.server.prefix_cache.hits",
        "{lookup}",
        Kind.COUNTER,
        "What was found in the prefix cache, in the measure of the queries.",
        _MODEL,
    ),
    Metric(
        "tailcause.server.prefix_cache.hit_ratio",
        "1",
        Kind.GAUGE,
        "Share of hits as a server without counters averages it itself.",
        _MODEL,
    ),
    Metric(
        "tailcause.server.prompt.tokens",
        "{token}",
        Kind.COUNTER,
        "Prompt tokens taken in.",
        _MODEL,
    ),
    Metric(
        "tailcause.server.generation.tokens",
        "{token}",
        Kind.COUNTER,
        "Tokens generated.",
        _MODEL,
    ),
    Metric(
        "tailcause.server.iteration.tokens",
        "{token}",
        Kind.HISTOGRAM,
        "Tokens of one step of the engine, of prefill and decode together.",
        _MODEL,
    ),
    _time("queue.time", "Time that requests waited for a place in the batch."),
    _time("prefill.time", "Time from a place in the batch to the first token."),
    _time("decode.time", "Time from the first token to the last."),
    _time("inference.time", "Time from a place in the batch to the last token."),
    _time("inter_token.latency", "Time between two tokens of a request, each one by itself."),
    _time("first_response.time", "Time to the first response of a model that sends several."),
    Metric(
        "tailcause.server.phase.time",
        "s",
        Kind.COUNTER,
        "Time of all requests in a phase, of servers that tell sums only: a mean, no quantile.",
        (*_MODEL, SERVER_PHASE),
    ),
    Metric(
        "tailcause.server.phase.quantile",
        "s",
        Kind.GAUGE,
        "A quantile of a phase's time as the server computes it over a window of its own.",
        (*_MODEL, SERVER_PHASE, SERVER_QUANTILE),
    ),
    Metric(
        "tailcause.server.slow_share",
        "1",
        Kind.GAUGE,
        "Share of the last half minute's values above a bound of the server's buckets.",
        (*_MODEL, SERVER_LATENCY, SERVER_THRESHOLD),
    ),
)
