"""A span processor for OpenTelemetry's Python SDK: `provider.add_span_processor(TailcauseSpanProcessor())`.

Each span that starts and ends as its work does gets a latency ledger from the agent on this node. A span that is created
after the fact gets none here: the agent joins it by time. A span opened under a running event loop shares its thread
with others' work, so it is marked as partial.
"""

import logging
import time
from asyncio import _get_running_loop
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from ebpf.hook.library import SpanLibrary

PARTIAL = "tailcause.wait.partial"
BACKDATED_NS = 5_000_000
"""A span whose start lies further back was created after the fact."""
MAX_OPEN = 65_536

Value = str | bool | int | float

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Header:
    """A request header, where the instrumentation records it (semantic convention `http.request.header.NAME`)."""

    name: str

    def read(self, span: Span) -> Value | None:
        """Return its first value; None when the span does not have it."""
        value = (span.attributes or {}).get(f"http.request.header.{self.name.lower()}")
        if isinstance(value, list | tuple):
            value = value[0] if value else None
        return value if isinstance(value, str | bool | int | float) else None


Source = Value | Header | Callable[[], Value | None]
BusinessContext = Mapping[str, Mapping[str, Source]]
"""Name prefix → attribute → value, header, or function that is called at each start and may return None."""


class TailcauseSpanProcessor(SpanProcessor):
    """Calls the span library at the edges of live spans and stamps business context at their start."""

    def __init__(
        self, context: BusinessContext | None = None, library: SpanLibrary | None = None
    ) -> None:
        self._context = tuple((context or {}).items())
        self._library = library or SpanLibrary()
        self._open: set[int] = set()
        self.failed_sources = 0
        """How often a function of the business context raised."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002
        """Stamp the span, and mark its start unless it lies in the past."""
        if self._context:
            self._stamp(span)
        if not self._library.available or time.time_ns() - (span.start_time or 0) > BACKDATED_NS:
            return
        if _get_running_loop() is not None:
            span.set_attribute(PARTIAL, True)
        ids = span.context
        if len(self._open) >= MAX_OPEN:  # spans that never end must not fill the memory
            self._open.clear()
        self._open.add(ids.span_id)
        self._library.start(ids.trace_id, ids.span_id)

    def on_end(self, span: ReadableSpan) -> None:
        """Mark the end of a span whose start was marked."""
        ids = span.context
        if ids is not None and ids.span_id in self._open:
            self._library.end(ids.trace_id, ids.span_id)
            self._open.discard(ids.span_id)

    def shutdown(self) -> None:
        """Forget the spans that are open."""
        self._open.clear()

    def force_flush(self, timeout_millis: int = 30000) -> bool:  # noqa: ARG002
        """Return at once: nothing is buffered."""
        return True

    def _stamp(self, span: Span) -> None:
        for prefix, sources in self._context:
            if span.name.startswith(prefix):
                for key, source in sources.items():
                    value = self._value(source, span)
                    if value is not None:
                        span.set_attribute(key, value)

    def _value(self, source: Source, span: Span) -> Value | None:
        if isinstance(source, Header):
            return source.read(span)
        if not callable(source):
            return source
        try:
            return source()
        except Exception as exc:  # noqa: BLE001  the application's function must not fail its request
            self.failed_sources += 1
            _log.debug("business context failed reason=%s", exc)
            return None
