"""Joins what the span probe measured with the spans that pass through the intake, by span id.

Requests get their ledger from the steps that served them, here and not in the detector: the agent sees both at the same
place, every back end then has the attributes, and nothing must be held back for it, because an SDK exports spans in the
order of their ends, so that the steps of a request come before the request. See `annotate` for the rules.
"""

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from agent.children import Children, Known
from agent.steps import Engines, Thread
from agent.telemetry.keys import OUTCOME, PROCESS_PID, SERVICE_INSTANCE_ID, SERVICE_NAME
from agent.telemetry.model import Sample
from agent.telemetry.steps import NOTHING, PHASES, Parts, Steps, Stretch, request_parts
from agent.waits import parts_of, write
from ebpf.probes.span import SpanWaits

SPAN, STEPS = "span", "steps"
_METRIC = "tailcause.ledger.spans"
_OWNER = frozenset((SERVICE_NAME, SERVICE_INSTANCE_ID, PROCESS_PID))


@dataclass(frozen=True)
class Bounds:
    """How much is held and for how long; what goes beyond is counted."""

    hold_s: float = 30.0
    request_hold_s: float = 120.0
    waits: int = 16_384
    requests: int = 8_192
    """With an engine; and as many without."""


@dataclass(frozen=True, slots=True)
class _Held:
    """One measured span that waits for its span; no parts when it moved between threads."""

    arrived_s: float
    thread: Thread
    parts: Parts | None


@dataclass(slots=True)
class _Request:
    """A request as its steps, phases and children show it, before its own span arrives."""

    engine: Steps
    known: Known
    last_ns: int = 0


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
        self._children = Children(self._bounds.requests, self._bounds.request_hold_s)
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
        if not self._held and not self._engines and fallback is None:
            return
        for resource_spans in message.resource_spans:
            spans = [
                span for scope_spans in resource_spans.scope_spans for span in scope_spans.spans
            ]
            bare: Sequence[trace_pb2.Span] = self._annotate(spans, _owner(resource_spans.resource))
            hooked = len(bare) < len(spans)
            if fallback is not None and bare:
                left = fallback.annotate(resource_spans.resource, bare)
                self._count("process", len(bare) - len(left))
                bare = left
            if hooked:  # the process marks its spans, and still these have none
                self._count("no_ledger", len(bare))
        self._expire()

    def _annotate(self, spans: Sequence[trace_pb2.Span], owner: Hashable) -> list[trace_pb2.Span]:
        """Do the spans of one process: measured ones, children, requests; return the others."""
        rest = [span for span in spans if not self._own(span, owner)]
        phases = [span for span in rest if not self._phase(span, owner)]
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

    def _own(self, span: trace_pb2.Span, owner: Hashable) -> bool:
        """Give a span what was measured of it; steps are better for a request than its own thread's time."""
        held = self._held.pop(span.span_id, None)
        if held is None or span.span_id in self._requests:
            return False
        self._children.take(span.span_id)
        write(span, held.parts or NOTHING, SPAN, partial=held.parts is None)
        self.outcomes["joined" if held.parts is not None else "moved"] += 1
        if held.parts is not None:
            self._remember(span, held.thread, held.parts, owner)
        return True

    def _remember(
        self, span: trace_pb2.Span, thread: Thread, parts: Parts, owner: Hashable
    ) -> None:
        start_ns, end_ns = span.start_time_unix_nano, span.end_time_unix_nano
        if span.links:
            engine = self._engines.of(thread)
            engine.add(start_ns, end_ns, parts)
            for link in span.links:
                request = self._served(link.span_id, engine)
                request.known.begin(start_ns)
                request.last_ns = max(request.last_ns, end_ns)
        elif span.parent_span_id:
            self._add_child(span.parent_span_id, (start_ns, end_ns, parts), owner)

    def _add_child(self, parent: bytes, child: Stretch, owner: Hashable) -> None:
        request = self._requests.get(parent)
        if request is not None:
            added = request.known.add(child)
        else:
            added = self._children.add(owner, parent, child, self._monotonic_s())
        self._count("overflow", not added)

    def _served(self, span_id: bytes, engine: Steps) -> _Request:
        """Return a request that this engine has just served."""
        now_s = self._monotonic_s()
        request = self._requests.get(span_id)
        if request is None:
            known = self._children.take(span_id) or Known(now_s)
            request = self._requests[span_id] = _Request(engine, known)
        request.engine, request.known.seen_s = engine, now_s
        self._requests.move_to_end(span_id)
        return request

    def _phase(self, span: trace_pb2.Span, owner: Hashable) -> bool:
        if span.name not in PHASES or not span.parent_span_id:
            return False
        start_ns, end_ns = span.start_time_unix_nano, span.end_time_unix_nano
        request = self._requests.get(span.parent_span_id)
        if request is None:
            self._children.of(owner, span.parent_span_id, self._monotonic_s()).begin(start_ns)
            return False
        request.known.begin(start_ns)
        parts = request.engine.between(start_ns, end_ns)
        if parts is None:
            return False
        write(span, parts, STEPS)
        self.outcomes["phase"] += 1
        return True

    def _request(self, span: trace_pb2.Span) -> bool:
        request = self._requests.pop(span.span_id, None)
        if request is None:  # a parent of measured spans is no sum of theirs
            self._children.take(span.span_id)
            return False
        known = request.known
        last_ns = min(request.last_ns, span.end_time_unix_nano)
        write(span, request_parts(request.engine, known.first_ns, last_ns, known.children), STEPS)
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
            young = request.known.seen_s >= now_s - self._bounds.request_hold_s
            if young and len(self._requests) <= self._bounds.requests:
                break
            del self._requests[key]
            self._count("no_request", 1)
        self._count("overflow", self._children.expire(now_s))


def _owner(resource: resource_pb2.Resource) -> Hashable:
    """Return what tells processes apart as far as their spans say."""
    return tuple(
        pair.value.string_value or pair.value.int_value
        for pair in resource.attributes
        if pair.key in _OWNER
    )
