"""Redacts OTLP requests in place and counts what it took."""

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from agent.otlp.codec import Message
from agent.redact.rules import (
    LOG_KEPT,
    SYSTEM_KEYS,
    TEMPLATE_KEYS,
    Kind,
    kind_of,
)
from agent.redact.sql import redact_query
from agent.redact.text import REDACTED, redact_stack, redact_url, template
from agent.telemetry.keys import REDACTION
from agent.telemetry.model import Sample

_METRIC = "tailcause.redaction.values"
_KNOWN_KEYS = 8_192
_KNOWN_QUERIES = 1_024
_KNOWN_QUERY_CHARS = 2_048
_NAME_WITH_VALUE = re.compile("['\"?=@]")

Pairs = Iterable[common_pb2.KeyValue]


class Redactor:
    """Knows each key once; the texts of queries that come again and again are read once too.

    It may be used from several threads.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, Kind | None] = {}
        self._queries: dict[tuple[str, str], str] = {}
        self._start_unix_ns = time.time_ns()
        self._counting = threading.Lock()
        self.counts: Counter[Kind] = Counter()
        """Values that were changed, by what they held."""

    def redact(self, message: Message) -> None:
        """Redact a request of any signal."""
        if isinstance(message, trace_service_pb2.ExportTraceServiceRequest):
            self._traces(message)
        elif isinstance(message, logs_service_pb2.ExportLogsServiceRequest):
            self._logs(message)
        else:
            self._metrics(message)

    def own_samples(self) -> list[Sample]:
        """Return the counts as samples."""
        now = time.time_ns()
        return [
            Sample(_METRIC, count, now, {REDACTION: str(kind)}, self._start_unix_ns)
            for kind, count in list(self.counts.items())
        ]

    def _traces(self, message: trace_service_pb2.ExportTraceServiceRequest) -> None:
        for resource_spans in message.resource_spans:
            self._attributes(resource_spans.resource.attributes)
            for scope_spans in resource_spans.scope_spans:
                self._attributes(scope_spans.scope.attributes)
                for span in scope_spans.spans:
                    self._span(span)

    def _span(self, span: trace_pb2.Span) -> None:
        if _NAME_WITH_VALUE.search(span.name):
            span.name = self._changed(Kind.MESSAGE, span.name, _name(span.name))
        self._attributes(span.attributes)
        for event in span.events:
            self._attributes(event.attributes)
        for link in span.links:
            if link.attributes:
                self._attributes(link.attributes)
        if span.status.message:
            text = span.status.message
            span.status.message = self._changed(Kind.MESSAGE, text, template(text))

    def _attributes(self, pairs: Pairs) -> None:
        kinds = self._kinds
        hits: list[tuple[common_pb2.KeyValue, Kind]] = []
        for pair in pairs:
            key = pair.key
            kind = kinds[key] if key in kinds else self._learn(key)
            if kind is not None:
                hits.append((pair, kind))
        for pair, kind in hits:
            self._value(pair.value, kind, pairs)

    def _learn(self, key: str) -> Kind | None:
        kind = kind_of(key)
        if len(self._kinds) < _KNOWN_KEYS:
            self._kinds[key] = kind
        return kind

    def _value(self, value: common_pb2.AnyValue, kind: Kind, pairs: Pairs) -> None:
        field = value.WhichOneof("value")
        if field in {None, "bool_value"}:
            return
        if field in {"int_value", "double_value"} and kind is not Kind.SECRET:
            return
        text = value.string_value if field == "string_value" else None
        value.string_value = self._changed(kind, text, self._redacted(text, kind, pairs))

    def _redacted(self, text: str | None, kind: Kind, pairs: Pairs) -> str:
        if text is None or kind in {Kind.PROMPT, Kind.SECRET}:
            return REDACTED
        if kind is Kind.QUERY:
            return self._query(text, _system(pairs))
        if kind is Kind.URL:
            return redact_url(text)
        return redact_stack(text) if kind is Kind.STACK else template(text)

    def _changed(self, kind: Kind, before: str | None, after: str) -> str:
        if before != after:
            with self._counting:
                self.counts[kind] += 1
        return after

    def _query(self, text: str, system: str) -> str:
        known = self._queries.get((system, text))
        if known is None:
            known = redact_query(text, system)
            if len(text) <= _KNOWN_QUERY_CHARS:
                if len(self._queries) >= _KNOWN_QUERIES:
                    self._queries.clear()
                self._queries[system, text] = known
        return known

    def _metrics(self, message: metrics_service_pb2.ExportMetricsServiceRequest) -> None:
        for resource_metrics in message.resource_metrics:
            self._attributes(resource_metrics.resource.attributes)
            for scope_metrics in resource_metrics.scope_metrics:
                for metric in scope_metrics.metrics:
                    field = metric.WhichOneof("data")
                    for point in getattr(metric, field).data_points if field else ():
                        self._point(point, has_exemplars=field != "summary")

    def _point(self, point: Any, *, has_exemplars: bool) -> None:
        self._attributes(point.attributes)
        if has_exemplars:
            for exemplar in point.exemplars:
                self._attributes(exemplar.filtered_attributes)

    def _logs(self, message: logs_service_pb2.ExportLogsServiceRequest) -> None:
        for resource_logs in message.resource_logs:
            self._attributes(resource_logs.resource.attributes)
            for scope_logs in resource_logs.scope_logs:
                for record in scope_logs.log_records:
                    self._record(record)

    def _record(self, record: logs_pb2.LogRecord) -> None:
        self._attributes(record.attributes)
        for pair in record.attributes:
            if not pair.key.startswith(LOG_KEPT) and kind_of(pair.key) is None:
                self._leaf(pair.value)
        if record.event_name.startswith("gen_ai."):
            record.body.string_value = self._changed(Kind.PROMPT, None, REDACTED)
        elif record.HasField("body"):
            self._body(record.body)

    def _body(self, body: common_pb2.AnyValue) -> None:
        """Redact a log body: a line keeps its template, a map its keys."""
        field = body.WhichOneof("value")
        if field == "kvlist_value":
            for pair in body.kvlist_value.values:
                self._entry(pair)
        elif field == "array_value":
            for item in body.array_value.values:
                self._body(item)
        elif field == "string_value":
            text = body.string_value
            body.string_value = self._changed(Kind.LOG, text, _line(text))
        elif field is not None:
            self._leaf(body)

    def _entry(self, pair: common_pb2.KeyValue) -> None:
        if pair.key in TEMPLATE_KEYS:
            self._body(pair.value)
        else:
            self._leaf(pair.value)

    def _leaf(self, value: common_pb2.AnyValue) -> None:
        """Redact a value that stands for itself; of a map in it the keys stay."""
        field = value.WhichOneof("value")
        if field == "kvlist_value":
            for pair in value.kvlist_value.values:
                self._entry(pair)
        elif field not in {None, "bool_value"}:
            value.string_value = self._changed(Kind.LOG, None, "<*>")


def _system(pairs: Pairs) -> str:
    return next((pair.value.string_value for pair in pairs if pair.key in SYSTEM_KEYS), "")


def _name(name: str) -> str:
    """Return the name of a span that may hold a query or a URL."""
    query = redact_query(name, "")
    if query != "?":
        return query
    return template(redact_url(name))


def _line(text: str) -> str:
    """Return a log line's template; a line of JSON keeps its keys."""
    if text.lstrip().startswith("{"):
        try:
            return json.dumps(_leaf_of("", json.loads(text)))
        except (ValueError, RecursionError):
            return template(text)
    return template(text)


def _leaf_of(key: str, value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, dict):
        return {inner: _leaf_of(inner, item) for inner, item in value.items()}
    if isinstance(value, str) and key in TEMPLATE_KEYS:
        return template(value)
    return "<*>"
