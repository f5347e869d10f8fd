"""What the GenAI attributes of a span say, under whichever name, and the current names beside the old ones.

Sources: OpenTelemetry semantic conventions v1.44 (GenAI) and the deprecations in their registry; vLLM,
vllm/tracing (names of its span attributes); OpenInference semantic conventions.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from agent.telemetry.keys import (
    ERROR_TYPE,
    GEN_AI_INPUT_TOKENS,
    GEN_AI_MODEL,
    GEN_AI_OPERATION,
    GEN_AI_OUTPUT_TOKENS,
    GEN_AI_PROVIDER,
    GEN_AI_TTFT,
)

_OLD_NAMES: Mapping[str, tuple[str, ...]] = {
    GEN_AI_MODEL: ("gen_ai.response.model", "llm.request.model", "llm.model_name"),
    GEN_AI_PROVIDER: ("gen_ai.system", "llm.provider", "llm.system"),
    GEN_AI_INPUT_TOKENS: ("gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens", "llm.token_count.prompt"),
    GEN_AI_OUTPUT_TOKENS: (
        "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens", "llm.token_count.completion",
    ),
}  # fmt: skip
_OF_GENAI = ("gen_ai.", "llm.")
_ROUTES = (
    ("/chat/completions", "chat"),
    ("/completions", "text_completion"),
    ("/embeddings", "embeddings"),
    ("/generate", "generate_content"),
)
_STATUS = "http.response.status_code"
_OLD_STATUS = "http.status_code"
UNKNOWN = "unknown"

Values = Mapping[str, common_pb2.AnyValue]


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a model as its server saw it; times in seconds, None where the span does not say."""

    operation: str
    provider: str
    model: str
    duration_s: float
    first_token_s: float | None
    output_tokens: float | None
    error: str


def modernise(span: trace_pb2.Span) -> Request | None:
    """Add the current names to a span that carries old ones, and return its request, None if it is none."""
    if span.kind != trace_pb2.Span.SPAN_KIND_SERVER:
        return None
    values = {pair.key: pair.value for pair in span.attributes}
    if not any(key.startswith(_OF_GENAI) for key in values):
        return None
    for name, olds in _OLD_NAMES.items():
        if name not in values and (old := next((o for o in olds if o in values), None)) is not None:
            pair = span.attributes.add(key=name)
            pair.value.CopyFrom(values[old])
            values[name] = pair.value
    return _request(span, values) if GEN_AI_MODEL in values else None


def _request(span: trace_pb2.Span, values: Values) -> Request:
    return Request(
        operation=_text(values, GEN_AI_OPERATION) or _operation(values),
        provider=_text(values, GEN_AI_PROVIDER) or UNKNOWN,
        model=_text(values, GEN_AI_MODEL) or UNKNOWN,
        duration_s=max(0, span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        first_token_s=_number(values, GEN_AI_TTFT),
        output_tokens=_number(values, GEN_AI_OUTPUT_TOKENS),
        error=_error(span, values),
    )


def is_failure(span: trace_pb2.Span) -> bool:
    """Tell whether a span failed: its status is an error, or it answered 400 and above."""
    if span.status.code == trace_pb2.Status.STATUS_CODE_ERROR:
        return True
    for pair in span.attributes:
        if pair.key in {_STATUS, _OLD_STATUS}:
            return bool(pair.value.int_value >= 400)
    return False


def _error(span: trace_pb2.Span, values: Values) -> str:
    status = _number(values, _STATUS) or _number(values, _OLD_STATUS) or 0
    if span.status.code != trace_pb2.Status.STATUS_CODE_ERROR and status < 400:
        return ""
    return _text(values, ERROR_TYPE) or (f"{status:.0f}" if status >= 400 else "_OTHER")


def _operation(values: Values) -> str:
    route = _text(values, "http.route") or _text(values, "url.path")
    return next((name for end, name in _ROUTES if route.endswith(end)), UNKNOWN)


def _text(values: Values, key: str) -> str:
    return values[key].string_value if key in values else ""


def _number(values: Values, key: str) -> float | None:
    if key not in values:
        return None
    kind = values[key].WhichOneof("value")
    if kind == "int_value":
        return float(values[key].int_value)
    return values[key].double_value if kind == "double_value" else None
