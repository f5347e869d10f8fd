"""Requests that have begun and not ended: a server that hangs ends nothing, and its steps tell of it all the same.

A span is seen when it ends. A child, or a step that links to a request, is there before the request's own
span, so that the request is known to be in flight from its first child on. Spans of one trace in one service count
once, because a child that has not ended cannot be told from a request.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from opentelemetry.proto.trace.v1 import trace_pb2

from agent.telemetry.keys import PIPE, REASON, SERVICE_NAME
from agent.telemetry.model import Sample

_COUNT = "tailcause.requests.in_flight"
_AGE = "tailcause.requests.in_flight.oldest_age"
_ENTRIES = (trace_pb2.Span.SPAN_KIND_SERVER, trace_pb2.Span.SPAN_KIND_CONSUMER)

Key = tuple[str, bytes]
"""Service and span id."""


@dataclass(frozen=True)
class Bounds:
    """How much is held and for how long; a request of which nothing was heard for `hold_s` is given up."""

    requests: int = 8_192
    ended: int = 8_192
    services: int = 100
    hold_s: float = 600.0


@dataclass(slots=True)
class _Flying:
    trace_id: bytes
    began_unix_ns: int
    heard_s: float


class InFlight:
    """`see` is told every span; all calls come from one thread."""

    def __init__(
        self,
        bounds: Bounds | None = None,
        now_unix_ns: Callable[[], int] = time.time_ns,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bounds = bounds or Bounds()
        self._now_unix_ns = now_unix_ns
        self._monotonic_s = monotonic_s
        self._start_unix_ns = now_unix_ns()
        self._flying: OrderedDict[Key, _Flying] = OrderedDict()
        self._ended: OrderedDict[Key, None] = OrderedDict()
        self._services: OrderedDict[str, float] = OrderedDict()
        self.dropped: Counter[str] = Counter()
        """Requests that were given up, by reason."""

    def see(self, span: trace_pb2.Span, service: str) -> None:
        """Take in a span that has ended."""
        is_entry, parent_id = span.kind in _ENTRIES, span.parent_span_id
        begun = self._flying.pop((service, span.span_id), None)
        if begun is not None or is_entry:
            self._end((service, span.span_id))
        if is_entry:  # its parent is another service's
            return
        if parent_id:
            self._begin((service, parent_id), span.trace_id, span.start_time_unix_nano)
            return
        for link in span.links:
            self._begin((service, link.span_id), link.trace_id, span.start_time_unix_nano)

    def _begin(self, key: Key, trace_id: bytes, start_unix_ns: int) -> None:
        if key in self._ended:  # a child that was exported after its request
            return
        now_s = self._monotonic_s()
        flying = self._flying.get(key)
        if flying is None:
            self._flying[key] = _Flying(trace_id, start_unix_ns, now_s)
            if len(self._flying) > self._bounds.requests:
                self._flying.popitem(last=False)
                self.dropped["overflow"] += 1
            self._know(key[0], now_s)
            return
        flying.began_unix_ns = min(flying.began_unix_ns, start_unix_ns)
        flying.heard_s = now_s
        self._flying.move_to_end(key)

    def _end(self, key: Key) -> None:
        self._ended[key] = None
        if len(self._ended) > self._bounds.ended:
            self._ended.popitem(last=False)
        if key[0] in self._services:
            self._know(key[0], self._monotonic_s())

    def _know(self, service: str, now_s: float) -> None:
        """Remember a service for as long as its requests are counted, so that its 0 is a known 0."""
        self._services[service] = now_s
        self._services.move_to_end(service)
        if len(self._services) > self._bounds.services:
            self._services.popitem(last=False)

    def _expire(self) -> None:
        since_s = self._monotonic_s() - self._bounds.hold_s
        while self._flying and next(iter(self._flying.values())).heard_s < since_s:
            self._flying.popitem(last=False)
            self.dropped["no_end"] += 1
        while self._services and next(iter(self._services.values())) < since_s:
            self._services.popitem(last=False)

    def own_samples(self) -> list[Sample]:
        """Return count and oldest age per service, and what was given up."""
        self._expire()
        now = self._now_unix_ns()
        traces: dict[str, set[bytes]] = {service: set() for service in self._services}
        oldest_ns = dict.fromkeys(self._services, now)
        for (service, _), flying in self._flying.items():
            if service in oldest_ns:
                traces[service].add(flying.trace_id)
                oldest_ns[service] = min(oldest_ns[service], flying.began_unix_ns)
        samples = [
            Sample(_COUNT, len(ids), now, {SERVICE_NAME: name}) for name, ids in traces.items()
        ]
        samples += [
            Sample(_AGE, max(0, now - began) / 1e9, now, {SERVICE_NAME: name})
            for name, began in oldest_ns.items()
            if traces[name]
        ]
        return samples + [
            Sample(
                "tailcause.pipe.dropped",
                count,
                now,
                {PIPE: "in_flight", REASON: reason},
                self._start_unix_ns,
            )
            for reason, count in self.dropped.items()
        ]
