"""Requests in flight are known by their children and steps, and a hung server is seen."""

import itertools

from opentelemetry.proto.trace.v1 import trace_pb2

from agent.inflight import Bounds, InFlight

START_NS = 10**18
SERVER, INTERNAL = trace_pb2.Span.SPAN_KIND_SERVER, trace_pb2.Span.SPAN_KIND_INTERNAL


class Bench:
    """A tracker with a clock of its own."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.now_s = 0.0
        self.ids = itertools.count(10**6)
        self.flights = InFlight(
            bounds, lambda: START_NS + round(self.now_s * 1e9), lambda: self.now_s
        )

    def see(
        self,
        request: int,
        kind: "trace_pb2.Span.SpanKind.ValueType" = INTERNAL,
        *,
        parent: bool = True,
        began_s: float = 0.0,
        links: tuple[int, ...] = (),
        service: str = "a",
        trace: int = 0,
    ) -> None:
        """Show a span: a request's own (SERVER), a child of it, or a step that has no parent."""
        span = trace_pb2.Span(
            trace_id=(trace or request).to_bytes(16),
            span_id=request.to_bytes(8) if kind == SERVER else next(self.ids).to_bytes(8),
            kind=kind,
            start_time_unix_nano=START_NS + round(began_s * 1e9),
        )
        if kind == SERVER:
            span.parent_span_id = b"caller.."
        elif parent:
            span.parent_span_id = request.to_bytes(8)
        for link in links:
            span.links.add(trace_id=link.to_bytes(16), span_id=link.to_bytes(8))
        self.flights.see(span, service)

    def counts(self) -> dict[str, tuple[float, float | None]]:
        """Return count and oldest age per service."""
        samples = self.flights.own_samples()
        found = {
            str(s.attributes["service.name"]): s.value
            for s in samples
            if s.metric.endswith("in_flight")
        }
        ages = {
            str(s.attributes["service.name"]): s.value
            for s in samples
            if s.metric.endswith("oldest_age")
        }
        return {service: (count, ages.get(service)) for service, count in found.items()}


def test_a_child_comes_before_its_request() -> None:
    """From the first child to the request's own span it is in flight; then there are none, which is known."""
    bench = Bench()
    bench.see(1, began_s=2.0)
    bench.now_s = 5.0
    assert bench.counts() == {"a": (1, 3.0)}
    bench.see(1, SERVER)
    assert bench.counts() == {"a": (0, None)}


def test_the_age_counts_from_the_earliest_child() -> None:
    """A child that began earlier and ended later makes the request older."""
    bench = Bench()
    bench.see(1, began_s=3.0)
    bench.see(1, began_s=1.0)
    bench.now_s = 4.0
    assert bench.counts() == {"a": (1, 3.0)}


def test_steps_tell_of_requests() -> None:
    """A step's links are requests in flight; the step itself is none."""
    bench = Bench()
    bench.see(50, parent=False, began_s=1.0, links=(1, 2, 3))
    bench.see(2, SERVER)
    bench.now_s = 2.0
    assert bench.counts() == {"a": (2, 1.0)}


def test_a_hung_server_grows_old() -> None:
    """Nothing ends any more, and the oldest age grows with the clock."""
    bench = Bench()
    bench.see(50, parent=False, links=(1, 2))
    ages = []
    for now_s in (10.0, 60.0, 300.0):
        bench.now_s = now_s
        ages.append(bench.counts()["a"])
    assert ages == [(2, 10.0), (2, 60.0), (2, 300.0)]


def test_what_is_never_heard_of_again_is_given_up() -> None:
    """A request whose server died does not stay for ever; it is counted."""
    bench = Bench()
    bench.see(1)
    bench.now_s = 601.0
    assert bench.counts() == {}
    assert bench.flights.dropped == {"no_end": 1}


def test_late_children_do_not_bring_a_request_back() -> None:
    """A child that is exported after its request is no sign of life."""
    bench = Bench()
    bench.see(1, SERVER)
    bench.see(1)
    bench.see(50, parent=False, links=(1,))
    assert bench.counts() == {}


def test_services_of_one_trace_are_apart() -> None:
    """A gateway's request is in flight while the model server's has ended."""
    bench = Bench()
    bench.see(1, service="gateway")
    bench.see(1, service="model")
    bench.see(1, SERVER, service="model")
    assert bench.counts() == {"gateway": (1, 0.0), "model": (0, None)}


def test_requests_of_one_trace_follow_each_other() -> None:
    """One trace may call a service again and again: the second request is seen after the first has ended."""
    bench = Bench()
    bench.see(1, trace=9)
    bench.see(1, SERVER, trace=9)
    bench.see(2, trace=9, began_s=1.0)
    bench.now_s = 3.0
    assert bench.counts() == {"a": (1, 2.0)}


def test_children_of_children_are_one_request() -> None:
    """A child in flight beside its request does not make two of it; both must end."""
    bench = Bench()
    bench.see(1, trace=9)
    bench.see(77, trace=9)
    assert bench.counts() == {"a": (1, 0.0)}
    bench.see(1, SERVER, trace=9)
    assert bench.counts() == {"a": (1, 0.0)}


def test_links_of_requests_are_no_steps() -> None:
    """A consumer's links lead to messages of others, which never end here."""
    bench = Bench()
    bench.see(5, SERVER, links=(1, 2))
    bench.see(6, links=(1, 2))
    assert bench.counts() == {"a": (1, 0.0)}


def test_everything_is_bounded() -> None:
    """Requests, ended ones and services have bounds; what is pushed out is counted."""
    bench = Bench(Bounds(requests=10, ended=10, services=3))
    for number in range(50):
        bench.see(number, service=f"s{number % 7}")
        bench.see(1000 + number, SERVER)
    assert len(bench.flights._flying) == 10
    assert len(bench.flights._ended) == 10
    assert len(bench.counts()) == 3
    assert bench.flights.dropped["overflow"] == 40
