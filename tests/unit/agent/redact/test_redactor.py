"""A request of any signal loses what users wrote, wherever it stands, and each change is counted."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1 import common_pb2

from agent.otlp.decode import attributes
from agent.otlp.encode import set_value
from agent.redact.redactor import Redactor
from agent.redact.rules import EXACT, PREFIXES, SUFFIXES, Kind
from agent.telemetry.model import AttributeValue

SECRET = "zqSwordfishqz"  # noqa: S105  planted


def put(pairs: object, values: Mapping[str, AttributeValue]) -> None:
    """Add attributes."""
    for key, value in values.items():
        pair = pairs.add()  # type: ignore[attr-defined]
        pair.key = key
        set_value(pair.value, value)


def span_with(**values: AttributeValue) -> dict[str, AttributeValue]:
    """Return the attributes of a span after redaction."""
    message = trace_service_pb2.ExportTraceServiceRequest()
    span = message.resource_spans.add().scope_spans.add().spans.add()
    put(span.attributes, {key.replace("__", "."): value for key, value in values.items()})
    Redactor().redact(message)
    return attributes(span.attributes)


def body_after(body: object) -> object:
    """Return a log body after redaction: text, or the map that it is."""
    message = logs_service_pb2.ExportLogsServiceRequest()
    record = message.resource_logs.add().scope_logs.add().log_records.add()
    if isinstance(body, dict):
        put(record.body.kvlist_value.values, body)
    else:
        record.body.string_value = str(body)
    Redactor().redact(message)
    if record.body.HasField("kvlist_value"):
        return attributes(record.body.kvlist_value.values)
    return record.body.string_value


def test_what_an_analysis_needs_stays() -> None:
    """Tokens, latencies, names, statuses and cgroups are nobody's secret."""
    kept: dict[str, AttributeValue] = {
        "gen_ai.request.model": "llama-7b",
        "gen_ai.usage.prompt_tokens": 7,
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.latency.time_to_first_token": 0.1,
        "gen_ai.tool.name": "search",
        "http.route": "/v1/completions",
        "http.response.status_code": 200,
        "db.system.name": "postgresql",
        "tailcause.step.batch_size": 3,
        "tailcause.cgroup.path": "/a/b",
        "url.path": "/v1/completions",
        "url.scheme": "https",
    }
    assert span_with(**kept) == kept


def test_query_keeps_its_shape_in_its_dialect() -> None:
    """The system beside the query decides how it is read."""
    values = span_with(
        db__query__text='SELECT "a" FROM t WHERE b = 7', db__system__name="postgresql"
    )
    assert values["db.query.text"] == 'SELECT "a" FROM t WHERE b = ?'


def test_numbers_of_prompts_stay_and_parameters_go() -> None:
    """A number under a prompt's key is a count; a query's parameter is a value whatever its type."""
    values = span_with(gen_ai__prompt_count=3, db__query__parameter__id=7)
    assert values == {"gen_ai.prompt_count": 3, "db.query.parameter.id": "REDACTED"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("request 7 of 'bob' failed", "request <num> of <str> failed"),
        ('{"msg": "took 5 ms", "user": "bob", "level": "warn"}',
         json.dumps({"msg": "took <num> ms", "user": "<*>", "level": "warn"})),
        ({"message": "took 5 ms", "user": "bob", "level": "warn", "n": 7},
         {"message": "took <num> ms", "user": "<*>", "level": "warn", "n": "<*>"}),
    ],
)  # fmt: skip
def test_log_bodies_keep_their_template(body: object, expected: object) -> None:
    """Text keeps its words, a map its keys, and where a record comes from stays."""
    assert body_after(body) == expected


def test_deep_json_in_a_log_does_no_harm() -> None:
    """A body that is nested too deep for its keys to be kept loses its values all the same."""
    deep = '{"a": ' * 3000 + f'"{SECRET}"' + "}" * 3000
    nested = '{"a": ' * 600 + f'"{SECRET}"' + "}" * 600
    assert SECRET not in str(body_after(deep))
    assert SECRET not in str(body_after(nested))


def test_changes_are_counted_by_kind() -> None:
    """Each value that changed counts once, what stayed as it was does not."""
    message = trace_service_pb2.ExportTraceServiceRequest()
    span = message.resource_spans.add().scope_spans.add().spans.add()
    put(
        span.attributes,
        {"gen_ai.prompt": "x", "db.statement": "SELECT 1", "url.full": "http://a/b"},
    )
    span.status.message = "no user 7"
    redactor = Redactor()
    redactor.redact(message)
    assert redactor.counts == {Kind.PROMPT: 1, Kind.QUERY: 1, Kind.MESSAGE: 1}
    assert {sample.metric for sample in redactor.own_samples()} == {"tailcause.redaction.values"}


def test_span_names_lose_queries_and_urls() -> None:
    """Some instrumentations put a statement or a URL into the name."""
    names = {
        "SELECT a FROM t WHERE b = 'x'": "SELECT a FROM t WHERE b = ?",
        "GET /items?q=x": "GET /items?REDACTED",
        "engine step": "engine step",
        "POST /v1/completions": "POST /v1/completions",
    }
    message = trace_service_pb2.ExportTraceServiceRequest()
    scope = message.resource_spans.add().scope_spans.add()
    for name in names:
        scope.spans.add().name = name
    Redactor().redact(message)
    assert [span.name for span in scope.spans] == list(names.values())


_keys = st.sampled_from(
    [key for key, kind in EXACT.items() if kind not in {Kind.MESSAGE, Kind.STACK}]
    + [prefix + "x" for prefix, _ in PREFIXES]
    + ["my" + suffix for suffix in SUFFIXES]
)
_PLACED = {
    Kind.QUERY: f"SELECT a FROM t WHERE b = '{SECRET}'",  # noqa: S608  nobody runs it
    Kind.URL: f"https://{SECRET}@host/x?y={SECRET}#{SECRET}",
    Kind.MESSAGE: f"no user '{SECRET}'",
    Kind.STACK: f"ValueError: {SECRET}",
}


def _text_for(key: str) -> str:
    return _PLACED.get(EXACT.get(key, Kind.PROMPT), f"tell me about {SECRET}")


def _any_value(key: str, shape: str) -> common_pb2.AnyValue:
    value = common_pb2.AnyValue()
    text = _text_for(key)
    if shape == "text":
        value.string_value = text
    elif shape == "list":
        value.array_value.values.add().string_value = text
    elif shape == "bytes":
        value.bytes_value = text.encode()
    else:
        put(value.kvlist_value.values, {"inner": text})
    return value


_places = st.sampled_from(["resource", "scope", "span", "event", "link"])
_shapes = st.sampled_from(["text", "list", "bytes", "map"])


@settings(max_examples=200, deadline=None)
@given(_keys, _places, _shapes)
def test_a_secret_in_a_span_never_comes_out(key: str, place: str, shape: str) -> None:
    """Under every listed key, at every place that holds attributes, in every type."""
    message = trace_service_pb2.ExportTraceServiceRequest()
    resource_spans = message.resource_spans.add()
    scope_spans = resource_spans.scope_spans.add()
    span = scope_spans.spans.add()
    holders = {
        "resource": resource_spans.resource,
        "scope": scope_spans.scope,
        "span": span,
        "event": span.events.add(),
        "link": span.links.add(),
    }
    holders[place].attributes.add(key=key, value=_any_value(key, shape))
    Redactor().redact(message)
    assert SECRET.encode() not in message.SerializeToString()


@settings(max_examples=100, deadline=None)
@given(_keys, st.sampled_from(["attributes", "exemplar", "body", "unknown"]), _shapes)
def test_a_secret_in_a_log_or_metric_never_comes_out(key: str, place: str, shape: str) -> None:
    """Log attributes of any key, log bodies in any type, points and their exemplars."""
    logs = logs_service_pb2.ExportLogsServiceRequest()
    metrics = metrics_service_pb2.ExportMetricsServiceRequest()
    record = logs.resource_logs.add().scope_logs.add().log_records.add()
    point = metrics.resource_metrics.add().scope_metrics.add().metrics.add().gauge.data_points.add()
    value = _any_value(key, shape)
    if place == "attributes":
        record.attributes.add(key=key, value=value)
        point.attributes.add(key=key, value=value)
    elif place == "unknown":
        record.attributes.add(key="my.own", value=value)
    elif place == "exemplar":
        point.exemplars.add().filtered_attributes.add(key=key, value=value)
    else:
        record.body.kvlist_value.values.add(key="user", value=value)
    redactor = Redactor()
    redactor.redact(logs)
    redactor.redact(metrics)
    assert SECRET.encode() not in logs.SerializeToString() + metrics.SerializeToString()


def test_prompts_in_log_events_go_whole() -> None:
    """A GenAI event carries the prompt in its body."""
    message = logs_service_pb2.ExportLogsServiceRequest()
    record = message.resource_logs.add().scope_logs.add().log_records.add()
    record.event_name = "gen_ai.user.message"
    put(record.body.kvlist_value.values, {"content": SECRET, "level": SECRET})
    Redactor().redact(message)
    assert record.body.string_value == "REDACTED"


def test_exceptions_keep_type_and_frames() -> None:
    """The event of an exception loses its message alone."""
    message = trace_service_pb2.ExportTraceServiceRequest()
    event = message.resource_spans.add().scope_spans.add().spans.add().events.add(name="exception")
    trace = f'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: {SECRET}'
    put(event.attributes, {
        "exception.type": "ValueError",
        "exception.message": f"no user '{SECRET}'",
        "exception.stacktrace": trace,
    })  # fmt: skip
    Redactor().redact(message)
    assert attributes(event.attributes) == {
        "exception.type": "ValueError",
        "exception.message": "no user <str>",
        "exception.stacktrace": 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError',
    }
