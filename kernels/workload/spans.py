"""The spans of requests and of engine steps, with the GenAI attributes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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

from ebpf.hook.library import SpanLibrary
from kernels.workload.clock import Clock
from kernels.workload.generation import Call, Generation, Step
from kernels.workload.ids import Ids, ReservedIds
from kernels.workload.tracing import Tracing
from kernels.workload.work import Work

Value = str | bool | int | float

_PROPAGATOR = TraceContextTextMapPropagator()


class RequestTrace:
    """The SERVER span of one request and its children; used in the event loop."""

    def __init__(
        self,
        tracer: Tracer,
        ids: ReservedIds,
        clock: Clock,
        route: str,
        headers: Mapping[str, str],
    ) -> None:
        self._tracer = tracer
        self._ids = ids
        self._clock = clock
        self.started_ns = clock.now_ns()
        self.span: Span = tracer.start_span(
            f"POST {route}",
            context=_PROPAGATOR.extract(headers, context=Context()),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": "POST", "http.route": route},
            start_time=self.started_ns,
        )
        self._inside = set_span_in_context(self.span, Context())

    @property
    def link(self) -> Link:
        """What a step that serves the request links to; one for all its steps, because they are many."""
        return Link(self.span.get_span_context())

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

    def fail(self, span: Span, attributes: Mapping[str, Value]) -> None:
        """Mark a child as failed; `attributes` hold its `error.type`."""
        span.set_attributes(attributes)
        span.set_status(Status(StatusCode.ERROR))

    def phase(self, name: str, start_ns: int, end_ns: int) -> None:
        """Add a child that is over; nothing when it never came to its end."""
        if start_ns and end_ns:
            self._tracer.start_span(name, context=self._inside, start_time=start_ns).end(end_ns)

    def work(self) -> Work:
        """Announce a child whose work another thread does, and mark the moment from which it waits for one."""
        return Work(self.span.get_span_context().trace_id, self._ids.reserve().span_id, self._clock)

    def add_work(self, work: Work, name: str, wait: str, attributes: Mapping[str, Value]) -> None:
        """Add the child called `name` with the time that its thread marked, and the one called `wait` before it.

        What failed before a thread began has a child of no length.
        """
        started_ns, ended_ns = work.close()
        self.phase(wait, work.asked_ns, started_ns or ended_ns)
        if not started_ns and "error.type" not in attributes:
            return
        self._ids.use(Ids(work.trace_id, work.span_id))
        span = self._tracer.start_span(
            name,
            context=self._inside,
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=started_ns or ended_ns,
        )
        if "error.type" in attributes:
            span.set_status(Status(StatusCode.ERROR))
        span.end(ended_ns)

    def finish(self, ended_ns: int, status: int, error: str = "") -> int:
        """End the request span at `ended_ns`; the result is its duration in nanoseconds."""
        self.span.set_attribute("http.response.status_code", status)
        if error:
            self.span.set_attribute("error.type", error)
            if status >= 500 or status in (429, 499):
                self.span.set_status(Status(StatusCode.ERROR))
        self.span.end(ended_ns)
        return ended_ns - self.started_ns


@dataclass(frozen=True, slots=True)
class _Begun:
    ids: Ids
    started_ns: int


class StepSpans:
    """A root span per engine step, linked to the requests in its batch.

    A span is made after its step is over, and the next step pays for that; a step itself pays for a time stamp and the
    marks of its edges.
    """

    def __init__(self, tracing: Tracing, clock: Clock, library: SpanLibrary) -> None:
        self._tracer = tracing.tracer
        self._ids = tracing.ids
        self._clock = clock
        self._library = library
        self._begun: _Begun | None = None

    def open(self) -> None:
        """Mark the start of a step, unless one has begun."""
        if self._begun is None:
            ids = self._ids.reserve()
            self._library.start(ids.trace_id, ids.span_id)
            self._begun = _Begun(ids, self._clock.now_ns())

    def close(self, step: Step, *, go_on: bool) -> None:
        """Mark the end of the step, and the start of the next one; then make its span."""
        begun = self._begun
        if begun is None:
            return
        ended_ns = self._end(begun)
        if go_on:
            self.open()
        self._ids.use(begun.ids)
        span = self._tracer.start_span(
            "engine step",
            context=Context(),
            attributes=_shape(step),
            links=_links(step.served),
            start_time=begun.started_ns,
        )
        if step.prefill_tokens:
            self._add_calls(span, step.calls)
        span.end(ended_ns)

    def _add_calls(self, span: Span, calls: Sequence[Call]) -> None:
        """Tell the parts of a step apart; one that only decodes has no parts."""
        inside = set_span_in_context(span, Context())
        for call in calls:
            self._tracer.start_span(
                "prefill chunk" if call.prefill else "decode step",
                context=inside,
                attributes=_call_shape(call),
                links=_links(call.served),
                start_time=call.start_ns,
            ).end(call.end_ns)

    def drop(self) -> None:
        """Forget the step that has begun."""
        if self._begun is not None:
            self._end(self._begun)

    def _end(self, begun: _Begun) -> int:
        ended_ns = self._clock.now_ns()
        self._library.end(begun.ids.trace_id, begun.ids.span_id)
        self._begun = None
        return ended_ns


def _shape(step: Step) -> Mapping[str, Value]:
    return {
        "tailcause.step.batch_size": step.batch_size,
        "tailcause.step.prefill_tokens": step.prefill_tokens,
        "tailcause.step.decode_tokens": step.decode_tokens,
        "tailcause.step.context_tokens": step.context_tokens,
        "tailcause.step.kv_used_ratio": step.kv_used_ratio,
        "tailcause.step.preempted": step.preempted,
    }


def _call_shape(call: Call) -> Mapping[str, Value]:
    tokens = "tailcause.step.prefill_tokens" if call.prefill else "tailcause.step.decode_tokens"
    return {
        "tailcause.step.batch_size": len(call.served),
        tokens: call.tokens,
        "tailcause.step.context_tokens": call.context_tokens,
    }


def _links(served: Sequence[Generation]) -> list[Link]:
    """Links to the requests that were served; warm-up has none."""
    return [one.trace for one in served if isinstance(one.trace, Link)]
