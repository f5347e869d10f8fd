"""Joins what the span probe measured with the spans that pass through the intake, by span id.

Requests get their ledger from the steps that served them, here and not in the detector: the agent sees both at the same
place, every back end then has the attributes, and nothing must be held back for it, because an SDK exports spans in the
order of their ends, so that the steps of a request come before the request. See `annotate` for the rules.
"""

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from agent.steps import Engine, Engines, Thread
from agent.telemetry.keys import OUTCOME
from agent.telemetry.model import Sample
from agent.waits import NOTHING, Parts, add, parts_of, write
from ebpf.probes.span import SpanWaits

SPAN, STEPS = "span", "steps"
PHASES = frozenset(("queue", "prefill", "decode"))
"""Children of a request in which it waits for its engine; any other does work of its own."""
_METRIC = "tailcause.ledger.spans"


@dataclass(frozen=True)
class Bounds:
    """How much is held and for how long; what goes beyond is counted."""

    hold_s: float = 30.0
    request_hold_s: float = 120.0
    waits: int = 16_384
    requests: int = 8_192


@dataclass(frozen=True, slots=True)
class _Held:
    """One measured span that waits for its span; no parts when it moved between threads."""

    arrived_s: float
    thread: Thread
    parts: Parts | None


@dataclass(slots=True)
class _Request:
    """A request as its steps and children show it, before its own span arrives."""

    seen_s: float
    engine: Engine | None = None
    first_ns: int = 0
    last_ns: int = 0
    children: list[tuple[int, int, Parts]] = field(default_factory=list)


class Fallback(Protocol):
    """Gives ledgers to spans that were neither measured nor served by steps."""

    @property
    def ready(self) -> bool:
        """Tell whether there may be any."""

    def annotate(
        self, resource: resource_pb2.Resource, spans: Sequence[trace_pb2.Span]
    ) -> Sequence[trace_pb2.Span]:
        """Add ledgers to spans of one process; return those that have none still."""


class Ledger:
    """`deliver` may be called from any thread, everything else from one."""

    def __init__(
        self,
        bounds: Bounds | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
        fallback: Fallback | None = None,
    ) -> None:
        self._bounds = bounds or Bounds()
        self._fallback = fallback
        self._monotonic_s = monotonic_s
        self._inbox: deque[SpanWaits] = deque()
        self._held: dict[bytes, _Held] = {}
        self._requests: OrderedDict[bytes, _Request] = OrderedDict()
        self._engines = Engines()
        self._start_unix_ns = time.time_ns()
        self.outcomes: Counter[str] = Counter()
        """Spans and measured spans, by what became of them."""

    def deliver(self, waits: SpanWaits) -> None:
        """Take what the probe measured of one span."""
        if len(self._inbox) >= self._bounds.waits:
            self.outcomes["overflow"] += 1
        else:
            self._inbox.append(waits)

    def annotate(self, message: trace_service_pb2.ExportTraceServiceRequest) -> None:
        """Add ledgers to the spans of a request, in place.

        - A measured span gets its own. If it links to others, it is a step and they are its requests.
        - A request waited for its engine from its first phase (the queue) to its last step, whoever's steps those were:
          it gets what they waited for, and what its other children (a look-up) waited for before and after.
        - A phase of a request (`queue`, `prefill`, `decode`) gets what the engine's steps waited for meanwhile.
        - Any other span is left to the fallback.
        """
        self._take_in()
        fallback = self._fallback if self._fallback is not None and self._fallback.ready else None
        if not self._held and not self._requests and fallback is None:
            return
        for resource_spans in message.resource_spans:
            spans = [
                span for scope_spans in resource_spans.scope_spans for span in scope_spans.spans
            ]
            bare: Sequence[trace_pb2.Span] = self._annotate(spans)
            hooked = len(bare) < len(spans)
            if fallback is not None and bare:
                left = fallback.annotate(resource_spans.resource, bare)
                self._count("process", len(bare) - len(left))
                bare = left
            if hooked:  # the process marks its spans, and still these have none
                self._count("no_ledger", len(bare))
        self._expire()

    def _annotate(self, spans: Sequence[trace_pb2.Span]) -> list[trace_pb2.Span]:
        """Do the spans of one process: measured ones, children, requests; return the others."""
        rest = [span for span in spans if not self._own(span)]
        phases = [span for span in rest if not self._phase(span)]
        return [span for span in phases if not self._request(span)]

    def _count(self, outcome: str, spans: int) -> None:
        if spans:
            self.outcomes[outcome] += spans

    def own_samples(self) -> list[Sample]:
        """Return the outcomes as samples."""
        now = time.time_ns()
        return [
            Sample(_METRIC, count, now, {OUTCOME: outcome}, self._start_unix_ns)
            for outcome, count in list(self.outcomes.items())
        ]

    def take_in(self) -> None:
        """Move what was delivered to where spans look for it, and let go of what no span came for."""
        self._take_in()
        self._expire()

    def _take_in(self) -> None:
        now_s = self._monotonic_s()
        while self._inbox:
            waits = self._inbox.popleft()
            parts = parts_of(waits.waits_s) if waits.waits_s else None
            key = bytes.fromhex(waits.span_id)
            self._held[key] = _Held(now_s, (waits.pid, waits.tid), parts)

    def _own(self, span: trace_pb2.Span) -> bool:
        """Give a span what was measured of it; steps are better for a request than its own thread's time."""
        held = self._held.get(span.span_id)
        if held is None:
            return False
        del self._held[span.span_id]
        request = self._requests.get(span.span_id)
        if request is not None and request.engine is not None:
            return False
        self._requests.pop(span.span_id, None)
        write(span, held.parts or NOTHING, SPAN, partial=held.parts is None)
        self.outcomes["joined" if held.parts is not None else "moved"] += 1
        if held.parts is not None:
            self._remember(span, held, held.parts)
        return True

    def _remember(self, span: trace_pb2.Span, held: _Held, parts: Parts) -> None:
        start_ns, end_ns = span.start_time_unix_nano, span.end_time_unix_nano
        if span.links:
            engine = self._engines.of(held.thread)
            engine.add(start_ns, end_ns, parts)
            for link in span.links:
                request = self._request_of(link.span_id)
                request.engine = engine
                request.first_ns = min(request.first_ns or start_ns, start_ns)
                request.last_ns = max(request.last_ns, end_ns)
        elif span.parent_span_id:
            self._request_of(span.parent_span_id).children.append((start_ns, end_ns, parts))

    def _request_of(self, span_id: bytes) -> _Request:
        now_s = self._monotonic_s()
        request = self._requests.get(span_id)
        if request is None:
            request = self._requests[span_id] = _Request(now_s)
        request.seen_s = now_s
        self._requests.move_to_end(span_id)
        return request

    def _phase(self, span: trace_pb2.Span) -> bool:
        if span.name not in PHASES:
            return False
        request = self._requests.get(span.parent_span_id)
        if request is None or request.engine is None:
            return False
        start_ns, end_ns = span.start_time_unix_nano, span.end_time_unix_nano
        parts = request.engine.between(start_ns, end_ns)
        if parts is None:
            return False
        write(span, parts, STEPS)
        request.first_ns = min(request.first_ns, start_ns)
        self.outcomes["phase"] += 1
        return True

    def _request(self, span: trace_pb2.Span) -> bool:
        request = self._requests.get(span.span_id)
        if (
            request is None or request.engine is None
        ):  # a parent of measured spans is no sum of theirs
            return False
        del self._requests[span.span_id]
        last_ns = min(request.last_ns, span.end_time_unix_nano)
        parts = request.engine.between(request.first_ns, last_ns) or NOTHING
        for start_ns, end_ns, waited in request.children:
            if end_ns <= request.first_ns or start_ns >= request.last_ns:
                parts = add(parts, waited)
        write(span, parts, STEPS)
        self.outcomes["request"] += 1
        return True

    def _expire(self) -> None:
        now_s = self._monotonic_s()
        surplus = max(0, len(self._held) - self._bounds.waits)
        while self._held:
            key, held = next(iter(self._held.items()))
            if held.arrived_s >= now_s - self._bounds.hold_s and not surplus:
                break
            del self._held[key]
            self.outcomes["overflow" if surplus else "no_span"] += 1
            surplus = max(0, surplus - 1)
        while self._requests:
            key, request = next(iter(self._requests.items()))
            young = request.seen_s >= now_s - self._bounds.request_hold_s
            if young and len(self._requests) <= self._bounds.requests:
                break
            del self._requests[key]
            self._count("no_request", request.engine is not None)
