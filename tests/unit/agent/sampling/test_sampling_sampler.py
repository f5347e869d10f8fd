"""Every trace that tells of the tail is kept, of the rest a fair share, whole, with its weight."""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from agent.otlp.tracestate import adjusted_count
from agent.sampling.sampler import Rules, Sampler
from agent.telemetry.keys import SERVICE_NAME

SERVER, INTERNAL = trace_pb2.Span.SPAN_KIND_SERVER, trace_pb2.Span.SPAN_KIND_INTERNAL
Request = trace_service_pb2.ExportTraceServiceRequest


@dataclass
class Spec:
    """One span to make."""

    trace: bytes
    name: str = "POST /v1"
    kind: int = SERVER
    parent: bytes = b""
    duration_s: float = 0.1
    error: bool = False
    state: str = ""
    links: Sequence[bytes] = ()
    status: int = 0


@dataclass
class Bench:
    """A sampler with a clock that stands, and what it let through."""

    rules: Rules = field(default_factory=lambda: Rules(0.1))
    now_s: float = 0.0
    bodies: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the sampler and teach it what is normal, so that nothing is slow for being new."""
        self.sampler = Sampler(self.rules, self._emit, lambda: self.now_s)
        for name in ("POST /v1", "engine step"):
            for _ in range(100):
                self.sampler._slow.is_slow(("chat", name), 0.1)

    def _emit(self, body: bytes, items: int) -> None:
        assert sum(1 for _ in _spans(Request.FromString(body))) == items
        self.bodies.append(body)

    def offer(self, *specs: Spec, exemplars: Iterable[bytes] = ()) -> None:
        """Offer one request with these spans."""
        self.sampler.offer(request(*specs), set(exemplars))

    def pass_time(self, seconds: float) -> None:
        """Move the clock and let the sampler look."""
        self.now_s += seconds
        self.sampler.tick()

    @property
    def kept(self) -> list[trace_pb2.Span]:
        """Return the spans that came through."""
        return [span for body in self.bodies for span in _spans(Request.FromString(body))]

    @property
    def traces(self) -> set[bytes]:
        """Return the traces that came through."""
        return {span.trace_id for span in self.kept}


def _spans(message: Request) -> Iterable[trace_pb2.Span]:
    for resource_spans in message.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            yield from scope_spans.spans


def request(*specs: Spec, service: str = "chat") -> Request:
    """Return a request of one service."""
    message = Request()
    resource_spans = message.resource_spans.add(schema_url="https://schema")
    resource_spans.resource.attributes.add(key=SERVICE_NAME).value.string_value = service
    scope = resource_spans.scope_spans.add()
    scope.scope.name = "lib"
    for number, spec in enumerate(specs):
        span = scope.spans.add(
            trace_id=spec.trace,
            span_id=(number + 1).to_bytes(8),
            parent_span_id=spec.parent,
            name=spec.name,
            kind=spec.kind,
            start_time_unix_nano=10**18,
            end_time_unix_nano=10**18 + round(spec.duration_s * 1e9),
            trace_state=spec.state,
        )
        if spec.error:
            span.status.code = trace_pb2.Status.STATUS_CODE_ERROR
        if spec.status:
            span.attributes.add(key="http.response.status_code").value.int_value = spec.status
        for link in spec.links:
            span.links.add(trace_id=link, span_id=b"l" * 8)
    return message


def late(trace: bytes, *, error: bool = False) -> Spec:
    """Return a child that comes after its request."""
    return Spec(trace, "late", INTERNAL, b"p" * 8, error=error)


def step(number: int, *links: bytes) -> Spec:
    """Return an engine step for requests."""
    return Spec(rare(number), "engine step", INTERNAL, links=links)


def rare(number: int = 0) -> bytes:
    """Return a trace id that a share of a tenth leaves out."""
    return bytes(8) + number.to_bytes(1) + bytes(6) + b"\1"


def lucky(number: int = 0) -> bytes:
    """Return a trace id that any share keeps."""
    return bytes([1]) + bytes(8) + b"\xff" * 6 + number.to_bytes(1)


def test_a_fair_share_with_its_weight() -> None:
    """Of 20 000 ordinary traces a tenth comes through, and their weights add up to all."""
    rng = random.Random(5)
    bench = Bench()
    for _ in range(200):
        bench.offer(*(Spec(rng.randbytes(16)) for _ in range(100)))
        bench.pass_time(0.1)
    bench.sampler.flush()
    assert len(bench.kept) == pytest.approx(2000, abs=200)  # 4.7 standard deviations
    weights = sum(adjusted_count(span.trace_state) for span in bench.kept)
    assert weights == pytest.approx(20_000, rel=0.1)
    assert bench.sampler.outcomes["probability"] == len(bench.kept)
    assert bench.sampler.outcomes.total() == 20_000


def test_agents_decide_alike() -> None:
    """Two agents keep the same traces, and one with a larger share keeps them too."""
    rng = random.Random(6)
    ids = [rng.randbytes(16) for _ in range(2000)]
    kept = []
    for share in (0.1, 0.1, 0.3):
        bench = Bench(Rules(share))
        bench.offer(*map(Spec, ids))
        bench.sampler.flush()
        kept.append(bench.traces)
    assert kept[0] == kept[1]
    assert kept[0] < kept[2]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (Spec(rare(), error=True), "failed"),
        (Spec(rare(), status=503), "failed"),
        (Spec(rare(), status=429), "failed"),
        (Spec(rare(), duration_s=0.4), "slow"),
    ],
)
def test_what_tells_of_the_tail_is_kept(spec: Spec, why: str) -> None:
    """Failed and slow traces come through whole, with a weight of 1."""
    bench = Bench()
    bench.offer(Spec(rare(), "child", INTERNAL, b"p" * 8), spec, Spec(rare(1)))
    bench.pass_time(6)
    assert bench.traces == {rare()}
    assert len(bench.kept) == 2
    assert {adjusted_count(span.trace_state) for span in bench.kept} == {1.0}
    assert bench.sampler.outcomes == {why: 2, "dropped": 1}


def test_a_failed_child_keeps_its_trace() -> None:
    """An error anywhere in a trace counts."""
    bench = Bench()
    bench.offer(Spec(rare(), "child", INTERNAL, b"p" * 8, error=True))
    bench.offer(Spec(rare()))
    bench.pass_time(6)
    assert len(bench.kept) == 2


def test_exemplars_are_kept() -> None:
    """A link from a histogram must lead somewhere."""
    bench = Bench()
    bench.offer(Spec(rare()), exemplars=[rare()])
    bench.pass_time(6)
    assert bench.sampler.outcomes == {"exemplar": 1}


def test_a_trace_waits_for_its_entry() -> None:
    """Children that come long before their request are held until it has come, and share its fate."""
    bench = Bench()
    bench.offer(Spec(rare(), "prefill", INTERNAL, b"p" * 8))
    bench.pass_time(20)
    assert bench.sampler.held_spans == 1
    bench.offer(Spec(rare(), duration_s=20))
    bench.pass_time(4)
    assert not bench.kept
    bench.pass_time(2)
    assert len(bench.kept) == 2
    assert bench.sampler.held_spans == 0


def test_a_trace_without_an_entry_is_decided_after_a_minute() -> None:
    """What never ends is not held for ever."""
    bench = Bench()
    bench.offer(
        Spec(rare(), "child", INTERNAL, b"p" * 8), Spec(lucky(), "child", INTERNAL, b"p" * 8)
    )
    bench.pass_time(61)
    assert bench.traces == {lucky()}
    assert bench.sampler.held_spans == 0


def test_late_spans_follow_their_trace() -> None:
    """A span that comes after the decision goes where the others went; a failed one overrules it."""
    bench = Bench()
    bench.offer(Spec(lucky()), Spec(rare(1)), Spec(rare(2)))
    bench.pass_time(6)
    bench.offer(late(lucky()), late(rare(1)), late(rare(2), error=True), late(rare(2)))
    came = Counter(span.trace_id for span in bench.kept if span.name == "late")
    assert came == {lucky(): 1, rare(2): 2}
    assert len({span.trace_state for span in bench.kept if span.trace_id == lucky()}) == 1


def test_steps_follow_their_requests() -> None:
    """An engine step is kept when one of its requests is, and dropped when all are dropped."""
    bench = Bench()
    bench.offer(step(100, rare(1), rare(2)), step(101, rare(2)))
    bench.offer(Spec(rare(1), error=True), Spec(rare(2)))
    bench.pass_time(6)
    assert bench.traces == {rare(1), rare(100)}
    bench.offer(step(102, rare(1)), step(103, rare(2)))
    assert bench.traces == {rare(1), rare(100), rare(102)}
    assert bench.sampler.held_spans == 0
    assert bench.sampler._steps_of == {}


def test_steps_of_unknown_requests_are_sampled() -> None:
    """A step whose requests never end is decided by its own randomness."""
    bench = Bench()
    bench.offer(
        Spec(lucky(), "engine step", INTERNAL, links=[rare(1)]),
        Spec(rare(9), "engine step", INTERNAL, links=[rare(1)]),
    )
    bench.pass_time(61)
    assert bench.traces == {lucky()}
    assert bench.sampler._steps_of == {}


def test_a_linked_step_has_no_weight() -> None:
    """What was chosen by its neighbours has no known probability."""
    bench = Bench()
    bench.offer(Spec(rare(5), "engine step", INTERNAL, links=[rare(1)], state="ot=th:8,a=b"))
    bench.offer(Spec(rare(1), error=True))
    bench.pass_time(6)
    assert [span.trace_state for span in bench.kept if span.trace_id == rare(5)] == ["a=b"]


def test_an_earlier_threshold_is_never_lowered() -> None:
    """What an SDK has sampled harder keeps its weight, what it sampled less gets ours."""
    bench = Bench()
    bench.offer(Spec(lucky(1), state="ot=th:fd70a"), Spec(lucky(2), state="ot=th:8"))
    bench.offer(Spec(rare(), error=True, state="ot=th:8"))
    bench.pass_time(6)
    weights = {span.trace_id: adjusted_count(span.trace_state) for span in bench.kept}
    assert weights == {
        lucky(1): pytest.approx(100, rel=0.001),
        lucky(2): pytest.approx(10, rel=0.001),
        rare(): 2.0,
    }


@pytest.mark.parametrize("rules", [Rules(0.1, held_spans=50), Rules(0.1, held_bytes=4000)])
def test_bounds_decide_earlier_and_lose_nothing(rules: Rules) -> None:
    """Past a bound the oldest traces are decided at once: the failed ones are still kept."""
    rng = random.Random(7)
    bench = Bench(rules)
    for _ in range(20):
        bench.offer(*(Spec(rng.randbytes(16), error=number == 0) for number in range(20)))
        assert bench.sampler.held_spans <= rules.held_spans
        assert bench.sampler._bytes <= rules.held_bytes
    bench.sampler.flush()
    assert bench.sampler.outcomes["failed"] == 20
    assert bench.sampler.outcomes["early"] > 0
    assert bench.sampler.outcomes.total() - bench.sampler.outcomes["early"] == 400


def test_what_is_remembered_is_bounded() -> None:
    """Neither decisions nor reminders of decided traces add up."""
    rng = random.Random(8)
    bench = Bench(Rules(0.1, held_spans=10, decisions=100))
    for _ in range(300):
        bench.offer(*(Spec(rng.randbytes(16)) for _ in range(50)))
    assert len(bench.sampler._decided) <= 100
    assert len(bench.sampler._due) <= 10_000


def test_spans_come_through_unchanged() -> None:
    """Resource, scope and every field of a span are what they were; the trace state tells the weight."""
    message = request(Spec(lucky(), state="a=b"), Spec(lucky(), "child", INTERNAL, b"p" * 8))
    bench = Bench()
    bench.sampler.offer(message)
    bench.pass_time(6)
    [body] = bench.bodies
    expected = Request()
    expected.CopyFrom(message)
    expected.resource_spans[0].scope_spans[0].spans[0].trace_state = "ot=th:e666,a=b"
    expected.resource_spans[0].scope_spans[0].spans[1].trace_state = "ot=th:e666"
    assert Request.FromString(body) == expected


def test_services_are_not_mixed() -> None:
    """Spans of several resources come out under their own."""
    bench = Bench()
    for service in ("a", "b", "a"):
        bench.sampler.offer(request(Spec(lucky(), error=True), service=service))
    bench.pass_time(6)
    [body] = bench.bodies
    counts = Counter(
        resource_spans.resource.attributes[0].value.string_value
        for resource_spans in Request.FromString(body).resource_spans
        for _ in resource_spans.scope_spans[0].spans
    )
    assert counts == {"a": 2, "b": 1}


def test_outcomes_are_exported() -> None:
    """What was dropped is counted under its own name."""
    bench = Bench()
    bench.offer(Spec(rare()))
    bench.pass_time(6)
    [sample] = bench.sampler.own_samples()
    assert (sample.metric, sample.value, dict(sample.attributes)) == (
        "tailcause.sampling.spans",
        1,
        {"outcome": "dropped"},
    )
