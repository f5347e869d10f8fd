"""Tail-aware sampling of traces.

Kept are all traces with a failed span, all that are slow where they enter a service, all that stand as an exemplar in
our histograms, and of the rest those whose 56 random bits reach the threshold of the configured share. Every
agent and SDK decides the same of one trace by these bits, so that it is kept whole. The threshold is written into
the spans' trace state; what is kept for a reason of its own keeps its weight of 1.

Source: OpenTelemetry specification, "TraceState: Probability Sampling", section "Equalizing downstream sampler".
"""

import heapq
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from agent.genai import is_failure
from agent.otlp import tracestate
from agent.sampling.held import (
    Envelope,
    HeldSpan,
    Trace,
    envelope_of,
    request_of,
    with_trace_state,
)
from agent.sampling.slow import SlowBar
from agent.telemetry.keys import OUTCOME, SERVICE_NAME
from agent.telemetry.model import Sample

_METRIC = "tailcause.sampling.spans"
_ENTRIES = (trace_pb2.Span.SPAN_KIND_SERVER, trace_pb2.Span.SPAN_KIND_CONSUMER)
_DROPPED = -1
_BATCH_SPANS = 1_000
_SWEEP = 4_096

Emit = Callable[[bytes, int], object]
"""Takes an encoded request and how many spans it holds."""


@dataclass(frozen=True)
class Rules:
    """What share of the rest is kept, and the bounds of what is held to decide.

    A trace is decided `wait_s` after its entry span, or after `hold_s`, or when it is the oldest and the bounds
    are reached. Nothing is lost by a bound; it is decided earlier, by less.
    """

    share: float
    wait_s: float = 5.0
    hold_s: float = 60.0
    held_spans: int = 50_000
    held_bytes: int = 64 << 20
    decisions: int = 20_000


class Sampler:
    """Holds the spans of a request until their traces are decided; `emit` gets those that are kept."""

    def __init__(
        self, rules: Rules, emit: Emit, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._rules = rules
        self._threshold = tracestate.threshold_of(rules.share)
        self._emit = emit
        self._monotonic_s = monotonic_s
        self._slow = SlowBar(monotonic_s=monotonic_s)
        self._held: OrderedDict[bytes, Trace] = OrderedDict()
        self._due: list[tuple[float, bytes]] = []
        self._decided: OrderedDict[bytes, int] = OrderedDict()
        self._steps_of: dict[bytes, set[bytes]] = {}
        self._spans = 0
        self._bytes = 0
        self._outbox: list[HeldSpan] = []
        self._start_unix_ns = time.time_ns()
        self.outcomes: Counter[str] = Counter()
        """Spans by what was decided of them."""

    @property
    def held_spans(self) -> int:
        """Return how many spans wait for their decision."""
        return self._spans

    def follow(self, rules: Rules) -> None:
        """Decide by other rules from now on, also of the traces that are held."""
        self._rules = rules
        self._threshold = tracestate.threshold_of(rules.share)

    def offer(
        self,
        message: trace_service_pb2.ExportTraceServiceRequest,
        exemplars: Collection[bytes] = (),
    ) -> None:
        """Take a request in; the traces of `exemplars` are kept."""
        for resource_spans in message.resource_spans:
            service = service_of(resource_spans)
            for scope_spans in resource_spans.scope_spans:
                envelope = envelope_of(resource_spans, scope_spans)
                for span in scope_spans.spans:
                    self._take(span, envelope, self._reason(span, service, exemplars))
        while self._held and (self._is_full()):
            trace_id = next(iter(self._held))
            self.outcomes["early"] += len(self._held[trace_id].spans)
            self._decide(trace_id)
        self.tick()

    def tick(self) -> None:
        """Decide the traces that are due and hand over what is kept."""
        now_s = self._monotonic_s()
        while self._due and self._due[0][0] <= now_s:
            _, trace_id = heapq.heappop(self._due)
            trace = self._held.get(trace_id)
            if trace is None:
                continue
            if trace.ended or now_s - trace.first_s >= self._rules.hold_s:
                self._decide(trace_id)
        self._hand_over()

    def flush(self) -> None:
        """Decide everything by what is known, at the end."""
        steps = [trace_id for trace_id, trace in self._held.items() if trace.is_step]
        for trace_id in [*(one for one in self._held if one not in set(steps)), *steps]:
            if trace_id in self._held:
                self._decide(trace_id)
        self._hand_over()

    def own_samples(self) -> list[Sample]:
        """Return the outcomes as samples."""
        now = time.time_ns()
        return [
            Sample(_METRIC, count, now, {OUTCOME: outcome}, self._start_unix_ns)
            for outcome, count in self.outcomes.items()
        ]

    def _is_full(self) -> bool:
        return self._spans > self._rules.held_spans or self._bytes > self._rules.held_bytes

    def _reason(self, span: trace_pb2.Span, service: str, exemplars: Collection[bytes]) -> str:
        slow = False
        failed = span.status.code == trace_pb2.Status.STATUS_CODE_ERROR
        if _is_entry(span):
            duration_ns = span.end_time_unix_nano - span.start_time_unix_nano
            slow = self._slow.is_slow((service, span.name), duration_ns / 1e9)
            failed = is_failure(span)
        if failed:
            return "failed"
        if slow:
            return "slow"
        return "exemplar" if span.trace_id in exemplars else ""

    def _take(self, span: trace_pb2.Span, envelope: Envelope, reason: str) -> None:
        trace_id = span.trace_id
        held = HeldSpan(envelope, span.SerializeToString(), span.trace_state)
        if trace_id in self._decided:
            self._late(trace_id, held, reason)
            return
        trace = self._held.get(trace_id)
        if trace is None:
            trace = self._begin(trace_id, span)
        trace.spans.append(held)
        trace.size_bytes += len(held.body)
        self._spans += 1
        self._bytes += len(held.body)
        trace.reason = trace.reason or reason
        if _is_entry(span) and not trace.ended:
            trace.ended = True
            self._remind(self._rules.wait_s, trace_id)
        if span.links and not span.parent_span_id and not _is_entry(span):
            trace.is_step = True
            self._follow(trace_id, trace, span)

    def _begin(self, trace_id: bytes, span: trace_pb2.Span) -> Trace:
        trace = Trace(self._monotonic_s(), tracestate.randomness(trace_id, span.trace_state))
        self._held[trace_id] = trace
        self._remind(self._rules.hold_s, trace_id)
        return trace

    def _remind(self, after_s: float, trace_id: bytes) -> None:
        """Look at a trace again later; what was decided meanwhile is swept out before it adds up."""
        heapq.heappush(self._due, (self._monotonic_s() + after_s, trace_id))
        if len(self._due) > 4 * len(self._held) + _SWEEP:
            self._due = [one for one in self._due if one[1] in self._held]
            heapq.heapify(self._due)

    def _follow(self, trace_id: bytes, trace: Trace, span: trace_pb2.Span) -> None:
        """Let an engine step wait for the requests in its batch."""
        for link in span.links:
            decided = self._decided.get(link.trace_id)
            if decided is None:
                trace.waits_for.add(link.trace_id)
                self._steps_of.setdefault(link.trace_id, set()).add(trace_id)
            elif decided != _DROPPED:
                trace.reason = trace.reason or "linked"
        if trace.reason or not trace.waits_for:
            self._decide(trace_id)

    def _late(self, trace_id: bytes, span: HeldSpan, reason: str) -> None:
        """Treat a span like the rest of its trace, unless it is itself what the trace would have been kept for."""
        threshold = self._decided[trace_id]
        if threshold == _DROPPED and reason:
            threshold = self._decided[trace_id] = 0
        elif threshold != _DROPPED:
            reason = "late"
        self._pass([span], threshold, reason)

    def _decide(self, trace_id: bytes) -> None:
        trace = self._held.pop(trace_id)
        self._spans -= len(trace.spans)
        self._bytes -= trace.size_bytes
        for request in trace.waits_for:
            self._forget_step(request, trace_id)
        threshold, reason = 0, trace.reason
        if not reason:
            orphan = trace.is_step and not trace.waits_for  # its requests are decided, and dropped
            kept = trace.random >= self._threshold and not orphan
            threshold, reason = (self._threshold, "probability") if kept else (_DROPPED, "")
        self._remember(trace_id, threshold)
        self._pass(trace.spans, threshold, reason)
        self._tell_steps(trace_id, kept=threshold != _DROPPED)

    def _tell_steps(self, request: bytes, *, kept: bool) -> None:
        for step_id in self._steps_of.pop(request, ()):
            step = self._held.get(step_id)
            if step is None:
                continue
            step.waits_for.discard(request)
            if kept:
                step.reason = step.reason or "linked"
            if kept or not step.waits_for:
                self._decide(step_id)

    def _forget_step(self, request: bytes, step_id: bytes) -> None:
        steps = self._steps_of.get(request)
        if steps is not None:
            steps.discard(step_id)
            if not steps:
                del self._steps_of[request]

    def _remember(self, trace_id: bytes, threshold: int) -> None:
        self._decided[trace_id] = threshold
        if len(self._decided) > self._rules.decisions:
            self._decided.popitem(last=False)

    def _pass(self, spans: list[HeldSpan], threshold: int, reason: str) -> None:
        self.outcomes[reason or "dropped"] += len(spans)
        if threshold == _DROPPED:
            return
        for span in spans:
            self._outbox.append(_weighed(span, threshold, linked=reason == "linked"))
        if len(self._outbox) >= _BATCH_SPANS:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._outbox:
            spans, self._outbox = self._outbox, []
            self._emit(request_of(spans), len(spans))


def service_of(resource_spans: trace_pb2.ResourceSpans) -> str:
    """Return the service that a resource names, or `unknown`."""
    for pair in resource_spans.resource.attributes:
        if pair.key == SERVICE_NAME:
            return str(pair.value.string_value)
    return "unknown"


def _is_entry(span: trace_pb2.Span) -> bool:
    """Tell whether a span is where its trace enters the service, which is the one that ends last."""
    return span.kind in _ENTRIES or not (span.parent_span_id or span.links)


def _weighed(span: HeldSpan, threshold: int, *, linked: bool) -> HeldSpan:
    """Return a span whose trace state tells its weight; a step that follows its requests has none that is known."""
    before = tracestate.threshold(span.trace_state) if span.trace_state else 0
    if linked:
        if not before:
            return span
        return with_trace_state(span, tracestate.without_threshold(span.trace_state))
    if threshold <= before:
        return span
    return with_trace_state(span, tracestate.with_threshold(span.trace_state, threshold))
