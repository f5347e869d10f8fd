"""Measured waits meet their spans, requests get what their steps waited for, and nothing is lost silently."""

from collections.abc import Mapping

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from pytest import approx  # noqa: PT013  reads better in comparisons

from agent.ledger import Bounds, Ledger
from agent.otlp.decode import attributes
from ebpf.layout import Wait
from ebpf.probes.span import SpanWaits

MS = 1_000_000


class Clock:
    """A clock that stands until it is moved."""

    now_s = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def waits(span_id: int, waits_s: Mapping[Wait, float], tid: int = 7) -> SpanWaits:
    """Return what the probe measured of a span."""
    return SpanWaits("ab" * 16, f"{span_id:016x}", 0.0, 1.0, 5, tid, "/x", waits_s)


def span(
    span_id: int, start_ms: int, end_ms: int, parent: int = 0, links: tuple[int, ...] = ()
) -> trace_pb2.Span:
    """Return a span."""
    made = trace_pb2.Span(
        name="queue" if parent else "x", trace_id=b"\1" * 16, span_id=span_id.to_bytes(8, "big"),
        start_time_unix_nano=start_ms * MS, end_time_unix_nano=end_ms * MS,
        links=[trace_pb2.Span.Link(trace_id=b"\1" * 16, span_id=n.to_bytes(8, "big")) for n in links],
    )  # fmt: skip
    if parent:
        made.parent_span_id = parent.to_bytes(8, "big")
    return made


def annotated(
    ledger: Ledger, *spans: trace_pb2.Span, service: str = "chat"
) -> list[dict[str, object]]:
    """Send spans of a service through in one request and return their ledgers."""
    message = trace_service_pb2.ExportTraceServiceRequest()
    resource_spans = message.resource_spans.add()
    resource_spans.resource.attributes.add(key="service.name").value.string_value = service
    resource_spans.scope_spans.add().spans.extend(spans)
    ledger.annotate(message)
    return [
        {
            key.removeprefix("tailcause.wait."): value
            for key, value in attributes(one.attributes).items()
            if key.startswith("tailcause.wait.")
        }
        for one in message.resource_spans[0].scope_spans[0].spans
    ]


def test_span_gets_what_was_measured() -> None:
    """Every kind of wait is in its part, the rest is unexplained, and the scope says whose it is."""
    ledger = Ledger()
    measured = {
        Wait.CPU: 0.010, Wait.RUNQUEUE: 0.020, Wait.THROTTLED: 0.005, Wait.DISK: 0.001, Wait.NETWORK: 0.002,
        Wait.POLL: 0.003, Wait.LOCK: 0.004, Wait.FAULT: 0.006, Wait.RECLAIM: 0.007, Wait.SLEEP: 0.008,
        Wait.GPU_SYNC: 0.009, Wait.OTHER: 0.011,
    }  # fmt: skip
    ledger.deliver(waits(1, measured))
    [found] = annotated(ledger, span(1, 0, 100))
    assert found == {
        "cpu": 0.010, "runqueue": 0.020, "throttled": 0.005, "disk": 0.001, "network": approx(0.005), "lock": 0.004,
        "fault": approx(0.013), "sleep": 0.008, "gpu_sync": 0.009, "unexplained": approx(0.025), "scope": "span",
    }  # fmt: skip


def test_parts_of_nothing_are_left_out() -> None:
    """A part that was 0 takes no room, the rest is there even when it is 0."""
    ledger = Ledger()
    ledger.deliver(waits(1, {Wait.CPU: 0.1}))
    assert annotated(ledger, span(1, 0, 100)) == [{"cpu": 0.1, "unexplained": 0.0, "scope": "span"}]


def test_moved_span_is_partial() -> None:
    """A span that ended on another thread has no parts, and says so."""
    ledger = Ledger()
    ledger.deliver(waits(1, {}))
    [found] = annotated(ledger, span(1, 0, 100))
    assert found == {"unexplained": 0.1, "scope": "span", "partial": True}
    assert ledger.outcomes == {"moved": 1}


def test_ledger_longer_than_its_span_is_partial() -> None:
    """More waits than time means that they are not all the span's."""
    ledger = Ledger()
    ledger.deliver(waits(1, {Wait.CPU: 0.2}))
    [found] = annotated(ledger, span(1, 0, 100))
    assert found["partial"] is True


def test_request_waits_for_its_engine() -> None:
    """From its first step to its last, others' steps between them too, but not the gaps."""
    ledger = Ledger()
    ledger.deliver(waits(11, {Wait.CPU: 0.010}))
    ledger.deliver(waits(12, {Wait.CPU: 0.004, Wait.RUNQUEUE: 0.006}))
    ledger.deliver(waits(13, {Wait.THROTTLED: 0.010}))
    found = annotated(
        ledger,
        span(11, 10, 20, links=(1,)),
        span(12, 25, 35, links=(2,)),
        span(13, 40, 50, links=(1, 2)),
        span(1, 0, 60),
    )
    assert found[3] == {
        "cpu": approx(0.014), "runqueue": approx(0.006), "throttled": approx(0.010), "unexplained": approx(0.030),
        "scope": "steps",
    }  # fmt: skip


def test_queue_inherits_what_the_steps_waited_for() -> None:
    """A request in the queue waited for the steps that ran meanwhile, and its total has that too."""
    ledger = Ledger()
    ledger.deliver(waits(11, {Wait.THROTTLED: 0.020}))
    ledger.deliver(waits(12, {Wait.CPU: 0.010}))
    queue, request = annotated(
        ledger,
        span(11, 0, 20, links=(9,)),
        span(12, 20, 30, links=(1,)),
        span(2, 10, 20, parent=1),
        span(1, 10, 30),
    )[2:]
    assert queue == {"throttled": approx(0.010), "unexplained": approx(0.0), "scope": "steps"}
    assert request == {
        "cpu": 0.010, "throttled": approx(0.010), "unexplained": approx(0.0), "scope": "steps",
    }  # fmt: skip


def test_work_of_its_own_is_not_explained_by_steps() -> None:
    """A look-up that nobody measured ran beside the engine, it did not wait for it."""
    ledger = Ledger()
    ledger.deliver(waits(11, {Wait.CPU: 0.010}))
    lookup = span(2, 0, 5, parent=1)
    lookup.name = "cache lookup"
    found = annotated(ledger, span(11, 0, 10, links=(1,)), lookup)
    assert found[1] == {}


def test_children_measured_before_the_steps_count_for_the_request() -> None:
    """A look-up of its own, in an earlier export, is part of what the request waited for."""
    ledger = Ledger()
    ledger.deliver(waits(2, {Wait.DISK: 0.005}))
    annotated(ledger, span(2, 0, 5, parent=1))
    ledger.deliver(waits(11, {Wait.CPU: 0.010}))
    found = annotated(ledger, span(11, 10, 20, links=(1,)), span(1, 0, 20))
    assert found[1] == {
        "cpu": 0.010, "disk": 0.005, "unexplained": approx(0.005), "scope": "steps",
    }  # fmt: skip


def test_steps_of_other_threads_are_not_its_engine() -> None:
    """Two engines in one process do not explain each other's requests."""
    ledger = Ledger()
    ledger.deliver(waits(11, {Wait.CPU: 0.010}, tid=7))
    ledger.deliver(waits(12, {Wait.DISK: 0.010}, tid=8))
    found = annotated(
        ledger, span(12, 0, 10, links=(2,)), span(11, 0, 10, links=(1,)), span(1, 0, 10)
    )
    assert "disk" not in found[2]


def test_steps_are_better_than_a_request_s_own_thread() -> None:
    """A request span that was measured in its event loop gets the ledger of its steps."""
    ledger = Ledger()
    ledger.deliver(waits(11, {Wait.CPU: 0.010}))
    ledger.deliver(waits(1, {Wait.POLL: 0.020}))
    found = annotated(ledger, span(11, 0, 10, links=(1,)), span(1, 0, 20))
    assert (found[1]["scope"], found[1]["cpu"]) == ("steps", 0.010)


def test_waits_without_a_span_are_counted() -> None:
    """What no span comes for within 30 s is let go, and counted."""
    clock = Clock()
    ledger = Ledger(monotonic_s=clock)
    ledger.deliver(waits(1, {Wait.CPU: 0.1}))
    ledger.take_in()
    clock.now_s += 29
    ledger.take_in()
    assert ledger.outcomes["no_span"] == 0
    clock.now_s += 2
    ledger.take_in()
    assert ledger.outcomes["no_span"] == 1
    assert annotated(ledger, span(1, 0, 100)) == [{}]


def test_spans_without_waits_are_counted() -> None:
    """A span of a process whose other spans are measured is a miss; one of a stranger is not."""
    ledger = Ledger()
    ledger.deliver(waits(1, {Wait.CPU: 0.1}))
    annotated(ledger, span(1, 0, 100), span(2, 0, 100))
    annotated(ledger, span(3, 0, 100))
    assert ledger.outcomes["no_ledger"] == 1


def test_too_many_are_dropped_and_counted() -> None:
    """Neither the inbox nor what is held grows beyond the bound; the newest stay."""
    ledger = Ledger(Bounds(waits=3))
    for number in range(1, 4):
        ledger.deliver(waits(number, {Wait.CPU: 0.1}))
    ledger.take_in()
    for number in range(4, 9):
        ledger.deliver(waits(number, {Wait.CPU: 0.1}))
    ledger.take_in()
    assert ledger.outcomes["overflow"] == 5
    assert [bool(one) for one in annotated(ledger, span(3, 0, 100), span(6, 0, 100))] == [
        False,
        True,
    ]


def test_requests_that_never_come_are_counted() -> None:
    """Steps linked to a request whose span got lost do not stay for ever."""
    clock = Clock()
    ledger = Ledger(monotonic_s=clock)
    ledger.deliver(waits(11, {Wait.CPU: 0.010}))
    annotated(ledger, span(11, 0, 10, links=(1,)))
    clock.now_s += 121
    ledger.take_in()
    assert ledger.outcomes["no_request"] == 1


def test_queue_exported_before_the_first_step_counts_from_its_start() -> None:
    """The request waited for others' steps from there on, whether its queue span or its first step is seen first."""
    ledger = Ledger()
    ledger.deliver(waits(11, {Wait.THROTTLED: 0.020}))
    annotated(ledger, span(11, 0, 20, links=(9,)))
    [queue] = annotated(ledger, span(2, 5, 20, parent=1))
    ledger.deliver(waits(12, {Wait.CPU: 0.010}))
    request = annotated(ledger, span(12, 20, 30, links=(1,)), span(1, 5, 30))[1]
    assert queue == {}
    assert request == {
        "cpu": 0.010, "throttled": approx(0.015), "unexplained": approx(0.0), "scope": "steps",
    }  # fmt: skip


def test_parents_without_an_engine_take_no_places_of_requests() -> None:
    """500 measured spans a second of a service without engine, for two minutes: another's slow requests keep it all."""
    clock = Clock()
    ledger = Ledger(monotonic_s=clock)
    number, open_requests, found = 1_000_000, [], []
    for second in range(120):
        clock.now_s += 1
        strangers = []
        for _ in range(500):
            ledger.deliver(waits(number, {Wait.CPU: 0.001}, tid=8))
            strangers.append(span(number, 0, 2, parent=number + 1))
            number += 2
        annotated(ledger, *strangers, service="api")
        request, look_up, step = 3 * second + 1, 3 * second + 2, 3 * second + 3
        begun_ms = second * 1000
        ledger.deliver(waits(look_up, {Wait.DISK: 0.005}))
        annotated(ledger, span(look_up, begun_ms, begun_ms + 5, parent=request))
        open_requests.append((request, begun_ms))
        if second >= 60:
            request, begun_ms = open_requests.pop(0)
            ledger.deliver(waits(step, {Wait.CPU: 0.010}))
            found += annotated(
                ledger,
                span(step, begun_ms + 60_000, begun_ms + 60_010, links=(request,)),
                span(request, begun_ms, begun_ms + 60_010),
            )[1:]
    assert len(found) == 60
    assert {(one["scope"], one["disk"], one["cpu"]) for one in found} == {("steps", 0.005, 0.010)}
    assert len(ledger._children) <= Bounds().requests
    assert ledger.outcomes["request"] == 60
    assert ledger.outcomes["overflow"] > 0


def test_children_of_one_request_are_bounded_and_counted() -> None:
    """A trace that goes on for ever does not fill the memory."""
    ledger = Ledger()
    for number in range(2, 22):
        ledger.deliver(waits(number, {Wait.CPU: 0.001}))
        annotated(ledger, span(number, 0, 1, parent=1))
    assert ledger.outcomes == {"joined": 20, "overflow": 4}


def test_parent_that_arrives_gives_its_places_back() -> None:
    """Its own span is the last that is heard of it."""
    ledger = Ledger()
    for number in (1, 2, 3):
        ledger.deliver(waits(10 * number, {Wait.CPU: 0.001}))
        annotated(ledger, span(10 * number, 0, 1, parent=number))
    ledger.deliver(waits(1, {Wait.CPU: 0.002}))
    annotated(ledger, span(1, 0, 2), span(2, 0, 2))
    assert len(ledger._children) == 2
