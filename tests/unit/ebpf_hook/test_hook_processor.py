"""The span processor marks live spans on their own thread, stamps business context, and harms nobody."""

import time
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer
from pytest import MonkeyPatch  # noqa: PT013  only the type

from ebpf.hook.library import PATH_VARIABLE, SpanLibrary, library_path
from ebpf.hook.processor import PARTIAL, BusinessContext, Header, TailcauseSpanProcessor


class Marks(SpanLibrary):
    """A library that notes the calls."""

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent/library"))
        self.available = True
        self.calls: list[tuple[str, int, int]] = []

    def start(self, trace_id: int, span_id: int) -> None:
        """Note a start."""
        self.calls.append(("start", trace_id, span_id))

    def end(self, trace_id: int, span_id: int) -> None:
        """Note an end."""
        self.calls.append(("end", trace_id, span_id))


def traced(
    context: BusinessContext | None = None,
) -> tuple[Tracer, Marks, InMemorySpanExporter]:
    """Return a tracer whose spans are marked and kept."""
    marks, kept = Marks(), InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TailcauseSpanProcessor(context, marks))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return provider.get_tracer("test"), marks, kept


def ids(span: ReadableSpan) -> tuple[int, int]:
    """Return a span's ids."""
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def test_edges_are_marked_with_the_span_s_ids() -> None:
    """A span's start and end call the library once each, nested ones inside."""
    tracer, marks, kept = traced()
    with tracer.start_as_current_span("outer"), tracer.start_as_current_span("inner"):
        pass
    inner, outer = map(ids, kept.get_finished_spans())
    assert marks.calls == [
        ("start", *outer),
        ("start", *inner),
        ("end", *inner),
        ("end", *outer),
    ]


def test_backdated_spans_are_not_marked() -> None:
    """A span made after the fact would measure the wrong time: neither edge is marked."""
    tracer, marks, _ = traced()
    tracer.start_span("late", start_time=time.time_ns() - 1_000_000_000).end()
    assert marks.calls == []


def test_span_under_an_event_loop_is_partial() -> None:
    """Outside of a loop a span says nothing of the kind."""
    tracer, marks, kept = traced()
    tracer.start_span("alone").end()
    assert PARTIAL not in (kept.get_finished_spans()[0].attributes or {})
    assert len(marks.calls) == 2


async def test_span_under_a_running_loop_says_so() -> None:
    """Others' work interleaves on this thread, so the ledger is not the span's alone."""
    tracer, marks, kept = traced()
    tracer.start_span("shared").end()
    assert (kept.get_finished_spans()[0].attributes or {})[PARTIAL] is True
    assert len(marks.calls) == 2


def test_business_context_goes_by_name_prefix() -> None:
    """Fixed values, functions and headers are stamped at the start of spans whose name begins so."""
    tracer, _, kept = traced(
        {
            "POST ": {
                "deployment.environment.name": "prod",
                "retry.count": lambda: 2,
                "user.tier": Header("X-Tier"),
                "absent": Header("X-Other"),
                "nothing": lambda: None,
            }
        }
    )
    tracer.start_span(
        "POST /v1", attributes={"http.request.header.x-tier": ["gold", "silver"]}
    ).end()
    tracer.start_span("GET /v1").end()
    post, get = kept.get_finished_spans()
    assert dict(post.attributes or {}) == {
        "http.request.header.x-tier": ("gold", "silver"),
        "deployment.environment.name": "prod",
        "retry.count": 2,
        "user.tier": "gold",
    }
    assert dict(get.attributes or {}) == {}


def test_failing_context_harms_nobody() -> None:
    """A function that raises costs its attribute and a count, not the request."""

    def broken() -> str:
        raise LookupError("no request here")

    processor = TailcauseSpanProcessor({"": {"a": broken, "b": "kept"}}, Marks())
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    provider.get_tracer("test").start_span("x").end()
    assert dict(kept.get_finished_spans()[0].attributes or {}) == {"b": "kept"}
    assert processor.failed_sources == 1


def test_absent_library_does_nothing(monkeypatch: MonkeyPatch) -> None:
    """Without the library, or with a file that is none, every call is a no-op."""
    for path in ("/nonexistent.so", __file__):
        monkeypatch.setenv(PATH_VARIABLE, path)
        library = SpanLibrary()
        assert not library.available
        library.start(1, 2)
        library.end(1, 2)


def test_environment_names_the_library(monkeypatch: MonkeyPatch) -> None:
    """The variable goes before the package's own copy, and a wrong one is not replaced by it."""
    monkeypatch.setenv(PATH_VARIABLE, __file__)
    assert library_path() == Path(__file__)
    monkeypatch.setenv(PATH_VARIABLE, "/nonexistent.so")
    assert library_path() is None
