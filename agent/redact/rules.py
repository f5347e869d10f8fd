"""Which attributes are redacted, and how: literal tables of keys.

Sources: OpenTelemetry semantic conventions v1.44 (GenAI, database, HTTP, URL, exceptions) and their older names;
the attribute lists of OpenLLMetry, OpenInference, the Vercel AI SDK, MLflow and Langfuse.
"""

from enum import StrEnum


class Kind(StrEnum):
    """What an attribute holds; the counts of redacted values go by it."""

    PROMPT = "prompt"
    """What users and models said: replaced whole."""
    QUERY = "query"
    """A database query: keeps its shape."""
    URL = "url"
    """Loses user, query and fragment."""
    SECRET = "secret"  # noqa: S105  a kind
    """Headers, parameters, connection strings: replaced whole."""
    MESSAGE = "message"
    """Text with values in it: keeps its template."""
    STACK = "stack"
    """A stack trace: keeps frames and types."""
    LOG = "log"
    """A log body or an attribute of a log record."""


EXACT: dict[str, Kind] = {
    **dict.fromkeys(
        (
            "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions",
            "gen_ai.event.content", "gen_ai.content", "gen_ai.retrieval.query.text", "gen_ai.retrieval.documents",
            "gen_ai.evaluation.explanation", "gen_ai.request.messages", "gen_ai.response.text",
            "llm.prompts", "llm.completions", "llm.function_call", "llm.tools", "llm.invocation_parameters",
            "traceloop.entity.input", "traceloop.entity.output", "input.value", "output.value",
            "embedding.text", "tool.parameters", "tool.description", "message.content", "document.content",
            "reranker.query", "ai.prompt", "ai.prompt.messages", "ai.prompt.tools", "ai.response.text",
            "ai.response.object", "ai.response.toolCalls", "ai.toolCall.args", "ai.toolCall.result", "ai.value",
            "ai.values", "mlflow.spanInputs", "mlflow.spanOutputs", "langfuse.observation.input",
            "langfuse.observation.output", "langfuse.trace.input", "langfuse.trace.output", "all_messages_events",
            "pydantic_ai.all_messages", "request_data", "response_data", "tool_arguments", "tool_response",
        ),
        Kind.PROMPT,
    ),
    "db.statement": Kind.QUERY,
    "db.query.text": Kind.QUERY,
    "url.full": Kind.URL,
    "url.original": Kind.URL,
    "http.url": Kind.URL,
    "http.target": Kind.URL,
    "url.query": Kind.SECRET,
    "url.fragment": Kind.SECRET,
    "db.connection_string": Kind.SECRET,
    "process.command_args": Kind.SECRET,
    "process.command_line": Kind.SECRET,
    "exception.message": Kind.MESSAGE,
    "error.message": Kind.MESSAGE,
    "otel.status_description": Kind.MESSAGE,
    "exception.stacktrace": Kind.STACK,
    "code.stacktrace": Kind.STACK,
}  # fmt: skip

PREFIXES: tuple[tuple[str, Kind], ...] = (
    ("gen_ai.prompt", Kind.PROMPT),
    ("gen_ai.completion", Kind.PROMPT),
    ("gen_ai.tool.", Kind.PROMPT),
    ("llm.input_messages", Kind.PROMPT),
    ("llm.output_messages", Kind.PROMPT),
    ("llm.prompts.", Kind.PROMPT),
    ("llm.completions.", Kind.PROMPT),
    ("llm.prompt_template", Kind.PROMPT),
    ("retrieval.documents", Kind.PROMPT),
    ("reranker.input_documents", Kind.PROMPT),
    ("reranker.output_documents", Kind.PROMPT),
    ("embedding.embeddings", Kind.PROMPT),
    ("http.request.header.", Kind.SECRET),
    ("http.response.header.", Kind.SECRET),
    ("rpc.grpc.request.metadata.", Kind.SECRET),
    ("rpc.grpc.response.metadata.", Kind.SECRET),
    ("rpc.request.metadata.", Kind.SECRET),
    ("rpc.response.metadata.", Kind.SECRET),
    ("db.query.parameter.", Kind.SECRET),
    ("db.operation.parameter.", Kind.SECRET),
)
SUFFIXES = (
    ".prompt", ".prompts", ".completion", ".completions", ".input_messages", ".output_messages", ".message.content",
)  # fmt: skip
KEPT = frozenset({"gen_ai.tool.name", "gen_ai.tool.type", "gen_ai.tool.call.id"})
"""Names and ids that a prefix would take."""

SYSTEM_KEYS = frozenset({"db.system", "db.system.name"})
TEMPLATE_KEYS = frozenset(
    {
        "message",
        "msg",
        "event",
        "text",
        "level",
        "severity",
        "logger",
        "logger_name",
        "file",
        "function",
        "module",
    }
)
"""Of a log body that is a map: they hold a line, or say where it comes from."""
LOG_KEPT = (
    "code.", "thread.", "log.", "exception.", "error.type", "event.", "service.", "k8s.", "container.", "host.",
    "otel.", "telemetry.", "http.request.method", "http.response.status_code", "http.route", "rpc.", "server.",
    "network.", "process.", "url.", "db.", "gen_ai.", "tailcause.", "level", "severity", "logger",
)  # fmt: skip
"""Beginnings of attributes of log records whose values have a meaning of their own, so that only the tables hold."""


def kind_of(key: str) -> Kind | None:
    """Return what an attribute of this key holds, None when it is kept as it is."""
    if key in KEPT:
        return None
    if (kind := EXACT.get(key)) is not None:
        return kind
    for prefix, of_prefix in PREFIXES:
        if key.startswith(prefix):
            return of_prefix
    return Kind.PROMPT if key.endswith(SUFFIXES) else None
