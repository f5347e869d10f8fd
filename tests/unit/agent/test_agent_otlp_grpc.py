"""OTLP over gRPC answers as the specification says, over real sockets, and one client cannot harm another."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from agent.otlp.access import Access
from agent.otlp.admission import Admission, Limits, Verdict
from agent.otlp.codec import Message, Signal, count_items
from agent.otlp.grpc_receiver import SERVICES, GrpcReceiver
from agent.otlp.receiver import Receiver

Until = Callable[[Callable[[], object]], Awaitable[None]]
MAX = [("grpc.max_send_message_length", -1)]


def trace_body(n_spans: int = 1) -> bytes:
    """Return an encoded traces request."""
    message = trace_service_pb2.ExportTraceServiceRequest()
    scope = message.resource_spans.add().scope_spans.add()
    for index in range(n_spans):
        scope.spans.add(trace_id=b"t" * 16, span_id=b"s" * 8, name=f"span {index}")
    return bytes(message.SerializeToString())


class Intake:
    """A receiver that remembers what it took and answers what it is told."""

    def __init__(self, limits: Limits | None) -> None:
        self.verdict = Verdict()
        self.gate = asyncio.Event()
        self.gate.set()
        self.items: list[tuple[Signal, int]] = []
        self.admission = Admission(self._accept, limits)
        self.receiver = GrpcReceiver(self.admission)
        self.port = 0

    async def _accept(self, signal: Signal, message: Message) -> Verdict:
        await self.gate.wait()
        self.items.append((signal, count_items(message)))
        return self.verdict


class Client:
    """A channel of its own."""

    def __init__(self, port: int) -> None:
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=MAX)

    async def send(self, body: bytes, signal: Signal = Signal.TRACES, **options: Any) -> bytes:
        """Export one body and return the answer."""
        call = self.channel.unary_unary(f"/{SERVICES[signal]}/Export")
        return bytes(await call(body, timeout=60, wait_for_ready=True, **options))

    async def refused(self, body: bytes, **options: Any) -> grpc.aio.AioRpcError:
        """Export one body, which must be refused, and return the error."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.send(body, **options)
        return caught.value

    def hang(self) -> Any:
        """Begin a call whose message never comes."""

        async def nothing() -> AsyncIterator[bytes]:
            await asyncio.sleep(600)
            yield b""

        return self.channel.stream_unary(f"/{SERVICES[Signal.TRACES]}/Export")(nothing())


@contextlib.asynccontextmanager
async def serving(limits: Limits | None = None) -> AsyncIterator[tuple[Intake, Client]]:
    """Serve an intake on a free port, with one client."""
    intake = Intake(limits)
    intake.port = await intake.receiver.start("127.0.0.1", 0)
    client = Client(intake.port)
    try:
        yield intake, client
    finally:
        intake.gate.set()
        await client.channel.close()
        await intake.receiver.stop()


def retry_delay(error: grpc.aio.AioRpcError) -> float | None:
    """Return the seconds of the RetryInfo in an error, as Google's own classes read it."""
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    status = status_pb2.Status.FromString(bytes(details))
    for detail in status.details:
        info = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            assert (status.code, status.message) == (error.code().value[0], error.details())
            return float(info.retry_delay.ToTimedelta().total_seconds())
    return None


@pytest.mark.parametrize(
    ("signal", "message"),
    [
        (Signal.TRACES, trace_service_pb2.ExportTraceServiceRequest()),
        (Signal.METRICS, metrics_service_pb2.ExportMetricsServiceRequest()),
        (Signal.LOGS, logs_service_pb2.ExportLogsServiceRequest()),
    ],
)
async def test_each_service_is_answered(signal: Signal, message: Any) -> None:
    """Full success is an empty response, for an empty request too."""
    async with serving() as (intake, client):
        assert await client.send(message.SerializeToString(), signal) == b""
    assert intake.items == [(signal, 0)]
    assert intake.admission.answers == {("grpc", "OK"): 1}


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_compression(compression: grpc.Compression) -> None:
    """Messages come plain or as gzip."""
    async with serving() as (intake, client):
        await client.send(trace_body(200), compression=compression)
    assert intake.items == [(Signal.TRACES, 200)]


async def test_other_compression_is_invalid() -> None:
    """The specification knows gzip alone."""
    async with serving() as (_, client):
        error = await client.refused(trace_body(200), compression=grpc.Compression.Deflate)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "gzip" in (error.details() or "")


async def test_garbage_is_invalid() -> None:
    """What is no message of the signal must not be sent again."""
    async with serving() as (intake, client):
        error = await client.refused(b"\xff\xff")
        await client.send(trace_body())
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert retry_delay(error) is None
    assert intake.admission.answers == {("grpc", "INVALID_ARGUMENT"): 1, ("grpc", "OK"): 1}


async def test_partial_success() -> None:
    """Rejected items are told in a success."""
    async with serving() as (intake, client):
        intake.verdict = Verdict(rejected=2, reason="too old")
        answer = await client.send(trace_body(3))
    response = trace_service_pb2.ExportTraceServiceResponse.FromString(answer)
    assert response.partial_success.rejected_spans == 2
    assert response.partial_success.error_message == "too old"


async def test_a_message_past_the_limit_is_refused_for_good() -> None:
    """It is RESOURCE_EXHAUSTED without RetryInfo, which a client must not send again."""
    async with serving(Limits(message_bytes=100_000)) as (intake, client):
        error = await client.refused(bytes(200_000))
        await client.send(trace_body())
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert retry_delay(error) is None
    assert intake.admission.answers["grpc", "RESOURCE_EXHAUSTED"] == 1


async def test_a_gzip_bomb_is_not_inflated() -> None:
    """A small message that inflates past the limit is refused, and the limit bounds the work."""
    async with serving(Limits(inflated_bytes=1_000_000)) as (intake, client):
        error = await client.refused(bytes(50_000_000), compression=grpc.Compression.Gzip)
        await client.send(trace_body())
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "inflates past 1000000 bytes" in (error.details() or "")
    assert intake.items == [(Signal.TRACES, 1)]


async def test_back_pressure_is_unavailable_with_retry_info() -> None:
    """When the application cannot take more, the sender is told when to come back."""
    async with serving() as (intake, client):
        intake.verdict = Verdict(reason="full", retry_after_s=2.5)
        error = await client.refused(trace_body())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert retry_delay(error) == 2.5


async def test_too_many_at_once_may_come_back(until: Until) -> None:
    """Past the bound on concurrent requests the status has RetryInfo, or clients would give up."""
    async with serving(Limits(concurrent_requests=1)) as (intake, client):
        intake.gate.clear()
        first = asyncio.create_task(client.send(trace_body()))
        await until(lambda: intake.admission.processing)
        error = await client.refused(trace_body())
        intake.gate.set()
        assert await first == b""
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert retry_delay(error) == 1.0


async def test_the_bound_is_common_to_both_transports(until: Until) -> None:
    """A receiver over HTTP and one over gRPC share one admission."""
    receiver = Receiver(Intake(None)._accept)
    assert GrpcReceiver(receiver.admission)._admission is receiver.admission


async def test_a_slow_client_is_cut_off_and_harms_nobody() -> None:
    """A message that never comes ends in DEADLINE_EXCEEDED; others are served meanwhile."""
    async with serving(Limits(read_timeout_s=1.0)) as (_, client):
        slow = client.hang()
        assert await client.send(trace_body()) == b""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await slow
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_slow_clients_make_room_for_others(until: Until) -> None:
    """With all places taken by messages that do not come, a good client's comes through all the same."""
    limits = Limits(message_bytes=1000, buffered_bytes=3000, read_timeout_s=120.0)
    async with serving(limits) as (intake, client):
        slow = [asyncio.ensure_future(client.hang()) for _ in range(3)]
        await until(lambda: len(intake.receiver._reading) == 3)
        assert await client.send(trace_body()) == b""
        [gone], waiting = await asyncio.wait(slow, return_when=asyncio.FIRST_COMPLETED)
        for call in waiting:
            call.cancel()
        await until(lambda: not intake.receiver._reading)
    error = gone.exception()
    assert isinstance(error, grpc.aio.AioRpcError)
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert retry_delay(error) == 1.0


async def test_a_client_that_goes_away_leaves_nothing(until: Until) -> None:
    """A call that is cancelled in the middle gives its place back."""
    async with serving() as (intake, client):
        call = client.hang()
        await until(lambda: intake.receiver._reading)
        call.cancel()
        await until(lambda: not intake.receiver._reading)
        assert await client.send(trace_body()) == b""


async def test_two_messages_are_invalid() -> None:
    """The calls of OTLP are unary."""
    async with serving() as (_, client):

        async def two() -> AsyncIterator[bytes]:
            yield trace_body()
            yield trace_body()

        call = client.channel.stream_unary(f"/{SERVICES[Signal.TRACES]}/Export")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(two(), timeout=60)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_unknown_method_is_unimplemented() -> None:
    """There is nothing but Export."""
    async with serving() as (_, client):
        call = client.channel.unary_unary(
            "/opentelemetry.proto.collector.trace.v1.TraceService/Get"
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"", timeout=60)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_taken_port_is_an_os_error() -> None:
    """A port of somebody else is never shared, and the reason comes along."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        receiver = GrpcReceiver(Intake(None).admission)
        with pytest.raises(OSError, match="in use") as caught:
            await receiver.start("127.0.0.1", taken.getsockname()[1])
        await receiver.stop()
    assert caught.value.errno == 98


async def test_two_receivers_do_not_share_a_port() -> None:
    """SO_REUSEPORT is off: half of the spans would go to the other one."""
    async with serving() as (intake, _):
        other = GrpcReceiver(Intake(None).admission, Access())
        with pytest.raises(OSError, match="in use"):
            await other.start("127.0.0.1", intake.port)
        await other.stop()


async def test_stop_lets_calls_finish(until: Until) -> None:
    """A call at work when the receiver stops gets its answer."""
    async with serving() as (intake, client):
        intake.gate.clear()
        call = asyncio.create_task(client.send(trace_body()))
        await until(lambda: intake.admission.processing)
        stopping = asyncio.create_task(intake.receiver.stop())
        await asyncio.sleep(0)
        intake.gate.set()
        assert await call == b""
        await stopping
