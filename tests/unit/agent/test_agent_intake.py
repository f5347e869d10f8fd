"""What comes in is enriched, measured, redacted, sampled and forwarded, in that order."""

import time
from collections.abc import Callable

import pytest
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from agent.enrich import Enricher
from agent.host.hierarchies import Hierarchies
from agent.host.paths import HostPaths
from agent.inflight import InFlight
from agent.intake import Intake, Stages
from agent.otlp.codec import Signal
from agent.otlp.sender import Sender, SenderLimits
from agent.redact.redactor import Redactor
from agent.sampling.sampler import Rules, Sampler
from agent.spanmetrics import DURATION, SpanMetrics

Request = trace_service_pb2.ExportTraceServiceRequest
Hosts = Callable[[str], HostPaths]


class Kept(Sender):
    """A sender that keeps what it is offered."""

    def __init__(self, limits: SenderLimits | None = None) -> None:
        super().__init__("http://127.0.0.1:1", limits)
        self.requests: list[Request] = []

    def offer(self, signal: Signal, body: bytes, items: int) -> bool:
        """Keep traces that the queue would take."""
        taken = super().offer(signal, body, items)
        if taken and signal is Signal.TRACES:
            self.requests.append(Request.FromString(body))
        return taken


def stages(host: Hosts, *, sampler: Sampler | None = None, redact: bool = True) -> Stages:
    """Return all stages on a fixture host."""
    enricher = Enricher(host("v2"), Hierarchies(()), "node-1")
    return Stages(
        enricher=enricher,
        metrics=SpanMetrics(),
        in_flight=InFlight(),
        redactor=Redactor() if redact else None,
        sampler=sampler,
    )


def request(trace: bytes = b"t" * 16, prompt: str = "tell me") -> Request:
    """Return a request with a served request and one of its children, the child first."""
    message = Request()
    scope = message.resource_spans.add().scope_spans.add()
    now = time.time_ns()
    scope.spans.add(trace_id=trace, span_id=b"c" * 8, parent_span_id=b"r" * 8, name="prefill",
                    kind=trace_pb2.Span.SPAN_KIND_INTERNAL, start_time_unix_nano=now)  # fmt: skip
    root = scope.spans.add(trace_id=trace, span_id=b"r" * 8, name="POST", kind=trace_pb2.Span.SPAN_KIND_SERVER,
                           start_time_unix_nano=now, end_time_unix_nano=now + 10**9)  # fmt: skip
    root.attributes.add(key="gen_ai.request.model").value.string_value = "m"
    root.attributes.add(key="gen_ai.prompt").value.string_value = prompt
    return message


async def test_a_request_goes_through_every_stage(host: Hosts) -> None:
    """It is counted with its model, not in flight, and leaves without its prompt."""
    sender, all_stages = Kept(), stages(host)
    verdict = await Intake(all_stages, sender).accept(Signal.TRACES, request())
    [sent] = sender.requests
    assert verdict.rejected == 0
    assert b"tell me" not in sent.SerializeToString()
    assert len(sent.resource_spans[0].scope_spans[0].spans) == 2
    assert all_stages.metrics is not None
    assert {one.value for one in all_stages.metrics.own_samples() if one.metric == DURATION} == {1}
    assert all_stages.in_flight is not None
    assert [one.value for one in all_stages.in_flight.own_samples()] == [0]


async def test_a_large_request_is_redacted_beside_the_loop(host: Hosts) -> None:
    """Its length changes who does it, not what comes out; what changed is counted all the same."""
    sender, all_stages = Kept(), stages(host)
    message = request()
    for _ in range(200):
        message.MergeFrom(request(prompt="tell me " * 100))
    await Intake(all_stages, sender).accept(Signal.TRACES, message)
    assert b"tell me" not in sender.requests[0].SerializeToString()
    assert all_stages.redactor is not None
    assert all_stages.redactor.counts.total() == 201


async def test_redaction_can_be_switched_off(host: Hosts) -> None:
    """Those who want their prompts get them."""
    sender = Kept()
    await Intake(stages(host, redact=False), sender).accept(Signal.TRACES, request())
    assert b"tell me" in sender.requests[0].SerializeToString()


async def test_without_an_address_requests_are_measured_and_rejected(host: Hosts) -> None:
    """The histograms need no back end; the sender of the spans is told that they go nowhere."""
    all_stages = stages(host)
    verdict = await Intake(all_stages, None).accept(Signal.TRACES, request())
    assert (verdict.rejected, "--forward" in verdict.reason) == (2, True)
    assert all_stages.metrics is not None
    assert all_stages.metrics.own_samples()


async def test_sampling_holds_and_hands_over(host: Hosts) -> None:
    """A sampled intake takes everything; what is kept leaves redacted, exemplars among it."""
    sender = Kept()
    sampler = Sampler(Rules(0.001), lambda body, items: sender.offer(Signal.TRACES, body, items))
    intake = Intake(stages(host, sampler=sampler), sender)
    verdict = await intake.accept(Signal.TRACES, request(bytes(15) + b"\1"))
    assert (verdict.rejected, sender.requests, sampler.held_spans) == (0, [], 2)
    sampler.flush()
    [sent] = sender.requests
    assert b"tell me" not in sent.SerializeToString()


async def test_logs_pass_redacted(host: Hosts) -> None:
    """Log bodies keep their template alone."""
    bodies: list[bytes] = []

    class Logs(Kept):
        def offer(self, signal: Signal, body: bytes, items: int) -> bool:
            bodies.append(body)
            return super().offer(signal, body, items)

    message = logs_service_pb2.ExportLogsServiceRequest()
    record = message.resource_logs.add().scope_logs.add().log_records.add()
    record.body.string_value = "user 'bob' waited 7 s"
    await Intake(stages(host), Logs()).accept(Signal.LOGS, message)
    sent = logs_service_pb2.ExportLogsServiceRequest.FromString(bodies[0])
    assert sent.resource_logs[0].scope_logs[0].log_records[0].body.string_value == (
        "user <str> waited <num> s"
    )


@pytest.mark.parametrize("limits", [SenderLimits(queued_items=1)])
async def test_a_request_that_no_queue_holds_is_rejected(host: Hosts, limits: SenderLimits) -> None:
    """It is told as a partial success, because it would not fit the next time either."""
    verdict = await Intake(stages(host), Kept(limits)).accept(Signal.TRACES, request())
    assert (verdict.rejected, "larger" in verdict.reason) == (2, True)
