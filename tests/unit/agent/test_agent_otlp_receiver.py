"""The receiver answers as the OTLP specification says, over real sockets."""

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from agent.http.server import Server
from agent.otlp.codec import JSON, PROTOBUF, Message, Signal, count_items
from agent.otlp.receiver import Limits, Receiver, Verdict
from agent.otlp.status import Code, error_body

Until = Callable[[Callable[[], object]], Awaitable[None]]


def trace_body(n_spans: int = 1) -> bytes:
    """Return a protobuf traces request."""
    message = trace_service_pb2.ExportTraceServiceRequest()
    scope = message.resource_spans.add().scope_spans.add()
    for index in range(n_spans):
        span = scope.spans.add()
        span.trace_id, span.span_id, span.name = b"t" * 16, b"s" * 8, f"span {index}"
    body: bytes = message.SerializeToString()
    return body


class Intake:
    """A receiver that remembers what it took and answers what it is told."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.verdict = Verdict()
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.items: list[tuple[Signal, int]] = []
        self.receiver = Receiver(self._accept, limits)
        self.port = 0

    async def _accept(self, signal: Signal, message: Message) -> Verdict:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.items.append((signal, count_items(message)))
        return self.verdict

    def url(self, path: str = "/v1/traces") -> str:
        """Return an address of this intake."""
        return f"http://127.0.0.1:{self.port}{path}"


@contextlib.asynccontextmanager
async def serving(limits: Limits | None = None) -> AsyncIterator[Intake]:
    """Serve an intake on a free port."""
    intake = Intake(limits)
    server = Server(intake.receiver.routes())
    intake.port = await server.start()
    try:
        yield intake
    finally:
        intake.gate.set()
        await server.stop()


async def post(
    intake: Intake, body: bytes, content_type: str = PROTOBUF, **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    """POST a body and return status, answer and headers."""
    all_headers = {"Content-Type": content_type} | headers
    async with (
        aiohttp.ClientSession() as session,
        session.post(intake.url(), data=body, headers=all_headers) as response,
    ):
        return response.status, await response.read(), dict(response.headers)


async def test_protobuf_is_accepted() -> None:
    """A protobuf request is answered by an empty response in protobuf."""
    async with serving() as intake:
        status, answer, headers = await post(intake, trace_body(3))
    assert (status, answer, headers["Content-Type"]) == (200, b"", PROTOBUF)
    assert intake.items == [(Signal.TRACES, 3)]


async def test_json_is_answered_in_json() -> None:
    """A JSON request, with a charset even, is answered in JSON."""
    async with serving() as intake:
        status, answer, headers = await post(intake, b"{}", JSON + "; charset=utf-8")
    assert (status, answer) == (200, b"{}")
    assert headers["Content-Type"].startswith(JSON)


async def test_gzip_is_accepted() -> None:
    """A compressed body is taken."""
    async with serving() as intake:
        body = gzip.compress(trace_body(2))
        status, _, _ = await post(intake, body, **{"Content-Encoding": "gzip"})
    assert status == 200
    assert intake.items == [(Signal.TRACES, 2)]


async def test_partial_success_names_what_was_rejected() -> None:
    """Rejected items are told in a 200, in the request's encoding."""
    async with serving() as intake:
        intake.verdict = Verdict(rejected=2, reason="too old")
        _, answer, _ = await post(intake, trace_body(3))
        _, json_answer, _ = await post(intake, b"{}", JSON)
    response = trace_service_pb2.ExportTraceServiceResponse.FromString(answer)
    assert response.partial_success.rejected_spans == 2
    assert response.partial_success.error_message == "too old"
    assert json.loads(json_answer) == {
        "partialSuccess": {"rejectedSpans": "2", "errorMessage": "too old"}
    }


async def test_garbage_is_a_400_with_a_status() -> None:
    """A body that does not decode is refused for good, with the reason."""
    async with serving() as intake:
        status, answer, _ = await post(intake, b"{", JSON)
    assert status == 400
    assert json.loads(answer)["code"] == Code.INVALID_ARGUMENT


async def test_protobuf_error_is_a_protobuf_status() -> None:
    """The error body is a google.rpc.Status in protobuf for a protobuf request."""
    async with serving() as intake:
        status, answer, headers = await post(intake, b"\xff\xff")
    text = "the body is not a protobuf message of this signal"
    assert (status, headers["Content-Type"]) == (400, PROTOBUF)
    assert answer == error_body(Code.INVALID_ARGUMENT, text, PROTOBUF)


def test_status_bytes() -> None:
    """The hand-written status is field 1 varint and field 2 string, length past 127 included."""
    assert error_body(Code.UNAVAILABLE, "x" * 200, PROTOBUF) == (
        b"\x08\x0e\x12\xc8\x01" + b"x" * 200
    )


async def test_damaged_gzip_is_a_400() -> None:
    """Damaged gzip is refused for good."""
    async with serving() as intake:
        body = gzip.compress(trace_body(2))[:-5]
        status, _, _ = await post(intake, body, **{"Content-Encoding": "gzip"})
    assert status == 400


async def test_other_content_type_is_a_415() -> None:
    """Only the two content types are taken."""
    async with serving() as intake:
        status, _, _ = await post(intake, b"x", "text/plain")
    assert status == 415


async def test_long_body_is_a_413() -> None:
    """A body past the limit is refused, whether it names its length or not."""
    async with serving(Limits(body_bytes=1000)) as intake:
        status, _, _ = await post(intake, bytes(1001))

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(20):
                yield bytes(100)

        chunked_status, _, _ = await post(intake, chunks())  # type: ignore[arg-type]
    assert (status, chunked_status) == (413, 413)


async def test_gzip_bomb_is_a_413() -> None:
    """A small body that inflates past the limit is refused."""
    async with serving(Limits(inflated_bytes=100_000)) as intake:
        bomb = gzip.compress(bytes(10_000_000))
        status, _, _ = await post(intake, bomb, **{"Content-Encoding": "gzip"})
    assert status == 413


async def test_back_pressure_is_a_503_with_retry_after() -> None:
    """When the application cannot take more, the sender is told when to come back."""
    async with serving() as intake:
        intake.verdict = Verdict(reason="full", retry_after_s=2.2)
        status, _, headers = await post(intake, trace_body())
    assert (status, headers["Retry-After"]) == (503, "3")


async def test_too_many_at_once_is_a_429(until: Until) -> None:
    """Past the bound on concurrent requests the sender is asked to come back."""
    async with serving(Limits(concurrent_requests=1)) as intake:
        intake.gate.clear()
        first = asyncio.create_task(post(intake, trace_body()))
        await until(lambda: intake.receiver.admission.processing)
        status, _, headers = await post(intake, trace_body())
        intake.gate.set()
        first_status, _, _ = await first
    assert (status, headers["Retry-After"], first_status) == (429, "1", 200)


async def test_slow_client_is_a_408_and_harms_nobody() -> None:
    """A client that never finishes its body is cut off; others are served meanwhile."""
    limits = Limits(concurrent_requests=1, read_timeout_s=0.5)
    async with serving(limits) as intake:
        reader, writer = await asyncio.open_connection("127.0.0.1", intake.port)
        head = f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: {PROTOBUF}\r\n"
        writer.write((head + "Content-Length: 100\r\n\r\nxx").encode())
        await writer.drain()
        status, _, _ = await post(intake, trace_body())
        first_line = await reader.readline()
        writer.close()
    assert status == 200
    assert first_line.startswith(b"HTTP/1.1 408")


async def test_slow_clients_together_are_bounded() -> None:
    """Bodies being read may not hold more than the common bound."""
    async with serving(Limits(buffered_bytes=1000)) as intake:
        status, _, headers = await post(intake, bytes(1001))
        again, _, _ = await post(intake, trace_body())
    assert (status, headers["Retry-After"], again) == (503, "1", 200)


async def test_disconnect_in_mid_body_harms_nobody(until: Until) -> None:
    """A client that goes away leaves nothing buffered."""
    async with serving() as intake:
        _, writer = await asyncio.open_connection("127.0.0.1", intake.port)
        head = f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: {PROTOBUF}\r\n"
        writer.write((head + "Content-Length: 100\r\n\r\nxx").encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        status, _, _ = await post(intake, trace_body())
        await until(lambda: not intake.receiver._buffered_bytes)
    assert status == 200


async def test_get_is_not_allowed() -> None:
    """Only POST is routed."""
    async with (
        serving() as intake,
        aiohttp.ClientSession() as session,
        session.get(intake.url()) as response,
    ):
        assert response.status == 405


async def test_answers_are_counted_by_status() -> None:
    """Every request leaves a count under the status it was answered with."""
    async with serving() as intake:
        await post(intake, trace_body())
        await post(intake, b"\xff\xff")
        await post(intake, b"x", "text/plain")
    assert dict(intake.receiver.admission.answers) == {
        ("http", "200"): 1,
        ("http", "400"): 1,
        ("http", "415"): 1,
    }


async def test_a_failing_application_is_a_500_and_harms_nobody() -> None:
    """An error of ours is answered and counted, and the next request is served."""
    async with serving() as intake:
        intake.error = ValueError("no")
        status, answer, _ = await post(intake, b"{}", JSON)
        intake.error = None
        again, _, _ = await post(intake, trace_body())
    assert (status, json.loads(answer)["code"], again) == (500, Code.INTERNAL, 200)
    assert intake.receiver.admission.answers["http", "500"] == 1


async def test_a_bad_id_costs_its_span_alone() -> None:
    """The rest of the batch is taken, the sender is told, and the loss is counted."""
    message = trace_service_pb2.ExportTraceServiceRequest.FromString(trace_body(3))
    message.resource_spans[0].scope_spans[0].spans[1].span_id = b"short"
    async with serving() as intake:
        intake.verdict = Verdict(reason="by the way")
        status, answer, _ = await post(intake, message.SerializeToString())
    response = trace_service_pb2.ExportTraceServiceResponse.FromString(answer)
    assert (status, response.partial_success.rejected_spans) == (200, 1)
    assert "span_id is no id of 8 bytes" in response.partial_success.error_message
    assert "by the way" in response.partial_success.error_message
    assert intake.items == [(Signal.TRACES, 2)]
    assert intake.receiver.admission.rejected == {"bad_span_id": 1}


async def test_a_64_mb_body_is_refused_while_others_are_served() -> None:
    """A body past the limit is refused by its length, unread; a good client beside it notices nothing."""
    async with serving() as intake:
        big = asyncio.create_task(post(intake, bytes(64 << 20)))
        good = [await post(intake, trace_body()) for _ in range(5)]
        try:
            status, _, _ = await big
        except aiohttp.ClientError:  # the connection was closed while the body was on its way
            status = 413
    assert [status for status, _, _ in good] == [200] * 5
    assert status == 413
    assert intake.receiver.admission.answers["http", "413"] == 1
