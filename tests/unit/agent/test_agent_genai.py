"""GenAI attributes are read under old names and new, and the new ones are added."""

import pytest
from opentelemetry.proto.trace.v1 import trace_pb2

from agent.genai import UNKNOWN, modernise
from agent.otlp.decode import attributes
from agent.otlp.encode import set_value
from agent.telemetry.model import AttributeValue

SERVER = trace_pb2.Span.SPAN_KIND_SERVER


def span_of(
    values: dict[str, AttributeValue], kind: "trace_pb2.Span.SpanKind.ValueType" = SERVER
) -> trace_pb2.Span:
    """Return a SERVER span of half a second with these attributes."""
    span = trace_pb2.Span(
        kind=kind,
        start_time_unix_nano=10**18,
        end_time_unix_nano=10**18 + 500_000_000,
    )
    for key, value in values.items():
        set_value(span.attributes.add(key=key).value, value)
    return span


def test_current_names() -> None:
    """A request by the conventions is read as it is, and nothing is added."""
    values: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.usage.output_tokens": 11,
        "gen_ai.latency.time_to_first_token": 0.1,
    }
    span = span_of(values)
    request = modernise(span)
    assert request is not None
    assert (request.operation, request.provider, request.model) == ("chat", "openai", "m")
    assert (request.duration_s, request.first_token_s, request.output_tokens) == (0.5, 0.1, 11.0)
    assert request.error == ""
    assert attributes(span.attributes) == values


def test_the_names_of_vllm() -> None:
    """Its request spans carry the response model and the older token names."""
    span = span_of({
        "gen_ai.response.model": "llama",
        "gen_ai.usage.prompt_tokens": 7,
        "gen_ai.usage.completion_tokens": 3,
        "gen_ai.latency.time_to_first_token": 0.2,
        "gen_ai.latency.e2e": 0.5,
    })  # fmt: skip
    request = modernise(span)
    assert request is not None
    assert (request.model, request.operation, request.provider) == ("llama", UNKNOWN, UNKNOWN)
    added = attributes(span.attributes)
    assert added["gen_ai.request.model"] == "llama"
    assert (added["gen_ai.usage.input_tokens"], added["gen_ai.usage.output_tokens"]) == (7, 3)
    assert added["gen_ai.usage.prompt_tokens"] == 7


def test_the_names_of_openinference() -> None:
    """`llm.*` says the same."""
    span = span_of({"llm.model_name": "m", "llm.token_count.completion": 5, "llm.provider": "x"})
    request = modernise(span)
    assert request is not None
    assert (request.model, request.provider, request.output_tokens) == ("m", "x", 5.0)


def test_a_current_name_goes_before_an_old_one() -> None:
    """Where both are there, the current one is believed."""
    span = span_of({"gen_ai.request.model": "new", "gen_ai.response.model": "old"})
    request = modernise(span)
    assert request is not None
    assert request.model == "new"
    assert len(span.attributes) == 2


@pytest.mark.parametrize(
    ("route", "operation"),
    [
        ("/v1/chat/completions", "chat"),
        ("/v1/completions", "text_completion"),
        ("/v1/embeddings", "embeddings"),
        ("/x", UNKNOWN),
    ],
)
def test_the_operation_follows_the_route(route: str, operation: str) -> None:
    """Servers with the OpenAI interface say by their route what they do."""
    request = modernise(span_of({"gen_ai.request.model": "m", "http.route": route}))
    assert request is not None
    assert request.operation == operation


@pytest.mark.parametrize(
    ("values", "code", "error"),
    [
        ({}, 0, ""),
        ({"http.response.status_code": 429}, 0, "429"),
        ({"http.response.status_code": 500, "error.type": "timeout"}, 2, "timeout"),
        ({"http.status_code": 503}, 0, "503"),
        ({}, 2, "_OTHER"),
    ],
)
def test_failures_have_a_type(values: dict[str, AttributeValue], code: int, error: str) -> None:
    """The type is what the span says, or its status."""
    span = span_of({"gen_ai.request.model": "m", **values})
    span.status.code = code  # type: ignore[assignment]
    request = modernise(span)
    assert request is not None
    assert request.error == error


@pytest.mark.parametrize(
    "span",
    [
        span_of({"http.route": "/"}),
        span_of({"gen_ai.request.model": "m"}, kind=trace_pb2.Span.SPAN_KIND_CLIENT),
        span_of({"gen_ai.tool.name": "x"}),
    ],
)
def test_other_spans_are_no_requests(span: trace_pb2.Span) -> None:
    """A request is a SERVER span that names a model."""
    assert modernise(span) is None
