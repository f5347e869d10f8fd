"""Metrics of the spans that pass through: what their requests took, how they came in, what became of them."""

from agent.telemetry.keys import (
    CODE,
    ERROR_TYPE,
    GEN_AI_MODEL,
    GEN_AI_OPERATION,
    GEN_AI_PROVIDER,
    NAMESPACE,
    OUTCOME,
    POD_NAME,
    REDACTION,
    SERVER_ADDRESS,
    SERVER_ENGINE,
    SERVER_PORT,
    SERVICE_NAME,
    SOURCE,
    TRANSPORT,
)
from agent.telemetry.metric import Kind, Metric

_SERVER = (SERVER_ADDRESS, SERVER_PORT, SERVER_ENGINE, POD_NAME, NAMESPACE)
_REQUEST = (SERVICE_NAME, GEN_AI_OPERATION, GEN_AI_PROVIDER, GEN_AI_MODEL, SOURCE, *_SERVER)

METRICS: tuple[Metric, ...] = (
    Metric(
        "gen_ai.server.request.duration",
        "s",
        Kind.HISTOGRAM,
        "Duration of requests to a model server, to the last output token.",
        (*_REQUEST, ERROR_TYPE),
    ),
    Metric(
        "gen_ai.server.time_to_first_token",
        "s",
        Kind.HISTOGRAM,
        "Time to the first output token of successful requests.",
        _REQUEST,
    ),
    Metric(
        "gen_ai.server.time_per_output_token",
        "s",
        Kind.HISTOGRAM,
        "Time per output token after the first, of successful requests.",
        _REQUEST,
    ),
    Metric(
        "tailcause.requests.in_flight",
        "{request}",
        Kind.GAUGE,
        "Requests whose steps or children have been seen, but not their end.",
        (SERVICE_NAME,),
    ),
    Metric(
        "tailcause.requests.in_flight.oldest_age",
        "s",
        Kind.GAUGE,
        "Age of the oldest request in flight.",
        (SERVICE_NAME,),
    ),
    Metric(
        "tailcause.otlp.requests",
        "{request}",
        Kind.COUNTER,
        "OTLP requests by transport and by what they were answered with.",
        (TRANSPORT, CODE),
    ),
    Metric(
        "tailcause.redaction.values",
        "{value}",
        Kind.COUNTER,
        "Values that were redacted, by what they held.",
        (REDACTION,),
    ),
    Metric(
        "tailcause.sampling.spans",
        "{span}",
        Kind.COUNTER,
        "Spans by what the sampling of traces decided of them.",
        (OUTCOME,),
    ),
)
