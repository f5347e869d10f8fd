"""The spans of requests and of engine steps, with the GenAI attributes."""

from collections.abc import Callable, Mapping, Sequence

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kernels.workload.clock import Clock
from kernels.workload.generation import Generation, Step

Value = str | bool | int | float

_PROPAGATOR = TraceContextTextMapPropagator()

ROUTE = "/v1/completions"
REQUEST_FIXED: Mapping[str, Value] = {"http.request.method": "POST", "http.route": ROUTE}


class RequestTrace:
    """The SERVER span of one request and its children; used in the event loop."""

    def __init__(self, tracer: Tracer, clock: Clock, headers: Mapping[str, str]) -> None:
        self._tracer = tracer
        self._clock = clock
        self.started_ns = clock.now_ns()
        self.span: Span = tracer.start_span(
            f"POST {ROUTE}",
            context=_PROPAGATOR.extract(headers, context=Context()),
            kind=SpanKind.SERVER,
            attributes=REQUEST_FIXED,
            start_time=self.started_ns,
        )
        self._inside = set_span_in_context(self.span, Context())

    @property
    def ids(self) -> dict[str, str]:
        """Ids for log lines."""
        context = self.span.get_span_context()
        return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}

    def describe(self, attributes: Mapping[str, Value]) -> None:
        """Add attributes to the request span."""
        self.span.set_attributes(attributes)

    def child(self, name: str, kind: SpanKind, attributes: Mapping[str, Value]) -> Span:
        """Open a child that begins now."""
        return self._tracer.start_span(
            name,
            context=self._inside,
            kind=kind,
            attributes=attributes,
            start_time=self._clock.now_ns(),
        )

    def close(self, span: Span) -> None:
        """End a child now."""
        span.end(self._clock.now_ns())

    def phase(self, name: str, start_ns: int, end_ns: int) -> None:
        """Add a child that is over; nothing when it never came to its end."""
        if start_ns and end_ns:
            self._tracer.start_span(name, context=self._inside, start_time=start_ns).end(end_ns)

    def finish(self, status: int, error: str = "") -> int:
        """End the request span; the result is its duration in nanoseconds."""
        self.span.set_attribute("http.response.status_code", status)
        if error:
            self.span.set_attribute("error.type", error)
            if status >= 500 or status in (429, 499):
                self.span.set_status(Status(StatusCode.ERROR))
        ended_ns = self._clock.now_ns()
        self.span.end(ended_ns)
        return ended_ns - self.started_ns


class StepSpans:
    """A root span per engine step, linked to the requests in its batch."""

    def __init__(self, tracer: Tracer, clock: Clock) -> None:
        self._tracer = tracer
        self._clock = clock

    def begin(self, step: Step, generations: Sequence[Generation]) -> Callable[[], None]:
        """Open a step's span in the engine's thread; calling the result ends it."""
        links = [
            Link(one.trace.get_span_context()) for one in generations if isinstance(one.trace, Span)
        ]
        span = self._tracer.start_span(
            "engine step",
            context=Context(),
            attributes={
                "tailcause.step.batch_size": step.batch_size,
                "tailcause.step.prefill_tokens": step.prefill_tokens,
                "tailcause.step.decode_tokens": step.decode_tokens,
                "tailcause.step.context_tokens": step.context_tokens,
                "tailcause.step.kv_used_ratio": step.kv_used_ratio,
            },
            links=links,
            start_time=self._clock.now_ns(),
        )
        return lambda: span.end(self._clock.now_ns())
