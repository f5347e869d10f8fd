"""Requests that have begun and not ended: a server that hangs ends nothing, and its steps tell of it all the same.

A span is seen when it ends. A child, or a step that links to a request, is there before the request's own
span, so that the request is known to be in flight from its first child on.
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
"""Service and trace id: a trace may pass through several services of a node."""


@dataclass(frozen=True)
class Bounds:
    """How much is held and for how long; a request of which nothing was heard for `hold_s` is given up."""

    requests: int = 8_192
    ended: int = 8_192
    services: int = 100
    hold_s: float = 600.0


@dataclass(slots=True)
class _Flying:
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
        if span.kind in _ENTRIES or not (span.parent_span_id or span.links):
            self._end((service, span.trace_id))
        elif span.parent_span_id:
            self._begin((service, span.trace_id), span.start_time_unix_nano)
        for link in span.links:
            self._begin((service, link.trace_id), span.start_time_unix_nano)

    def _begin(self, key: Key, start_unix_ns: int) -> None:
        if key in self._ended:  # a child that was exported after its request
            return
        now_s = self._monotonic_s()
        flying = self._flying.get(key)
        if flying is None:
            self._flying[key] = _Flying(start_unix_ns, now_s)
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
        if self._flying.pop(key, None) is not None:
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
        counts: Counter[str] = Counter(dict.fromkeys(self._services, 0))
        oldest_ns = dict.fromkeys(self._services, now)
        for (service, _), flying in self._flying.items():
            if service in oldest_ns:
                counts[service] += 1
                oldest_ns[service] = min(oldest_ns[service], flying.began_unix_ns)
        samples = [Sample(_COUNT, n, now, {SERVICE_NAME: name}) for name, n in counts.items()]
        samples += [
            Sample(_AGE, max(0, now - began) / 1e9, now, {SERVICE_NAME: name})
            for name, began in oldest_ns.items()
            if counts[name]
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
