"""Whatever one client sends, over either transport, it gets the specification's answer and a good client is served."""

import asyncio
import contextlib
import gzip
import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import grpc
import grpc.aio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from agent.http.server import Server
from agent.otlp.admission import Limits, Verdict
from agent.otlp.codec import JSON, PROTOBUF, Message, Signal, count_items
from agent.otlp.grpc_receiver import SERVICES, GrpcReceiver
from agent.otlp.receiver import Receiver

PATH = f"/{SERVICES[Signal.TRACES]}/Export"
REFUSALS_HTTP = {400, 401, 408, 413, 415, 429, 503}
REFUSALS_GRPC = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
}


def good_body() -> bytes:
    """Return a request of 20 spans."""
    message = trace_service_pb2.ExportTraceServiceRequest()
    scope = message.resource_spans.add().scope_spans.add()
    for number in range(20):
        scope.spans.add(trace_id=b"t" * 16, span_id=bytes([number + 1]) * 8, name="good")
    return bytes(message.SerializeToString())


@dataclass
class Served:
    """Both receivers, what they took, and how a good client fared meanwhile."""

    url: str = ""
    target: str = ""
    spans: int = 0
    good: int = 0
    bad: list[str] = field(default_factory=list)

    async def accept(self, _: Signal, message: Message) -> Verdict:
        """Count."""
        self.spans += count_items(message)
        return Verdict()


@contextlib.asynccontextmanager
async def serving(limits: Limits | None = None) -> AsyncIterator[Served]:
    """Serve both transports under one admission."""
    served = Served()
    receiver = Receiver(served.accept, limits)
    server = Server(receiver.routes())
    other = GrpcReceiver(receiver.admission)
    served.url = f"http://127.0.0.1:{await server.start()}/v1/traces"
    served.target = f"127.0.0.1:{await other.start('127.0.0.1', 0)}"
    try:
        yield served
    finally:
        await other.stop()
        await server.stop()


@contextlib.asynccontextmanager
async def beside_a_good_client(limits: Limits | None = None) -> AsyncIterator[Served]:
    """Serve, while a good client sends over both transports all the time and may never be refused."""
    async with serving(limits) as served:
        stop = asyncio.Event()
        sending = asyncio.create_task(_send_good(served, stop))
        try:
            yield served
        finally:
            stop.set()
            await sending
    assert served.bad == []
    assert served.good >= 2


async def _send_good(served: Served, stop: asyncio.Event) -> None:
    async with (
        aiohttp.ClientSession() as session,
        grpc.aio.insecure_channel(served.target) as channel,
    ):
        call = channel.unary_unary(PATH)
        while not stop.is_set() or served.good < 2:
            async with session.post(
                served.url, data=good_body(), headers={"Content-Type": PROTOBUF}
            ) as answer:
                if answer.status != 200:
                    served.bad.append(f"http {answer.status}")
            try:
                await call(good_body(), timeout=60)
            except grpc.aio.AioRpcError as error:
                served.bad.append(f"grpc {error.code()} {error.details()}")
            served.good += 1
            await asyncio.sleep(0.005)


async def post(served: Served, body: bytes, content_type: str, encoding: str = "") -> int:
    """POST a body; a connection that the server closes on a body still on its way counts as 413."""
    headers = {"Content-Type": content_type} | ({"Content-Encoding": encoding} if encoding else {})
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.post(served.url, data=body, headers=headers) as answer,
        ):
            text = await answer.read()
    except aiohttp.ClientError:
        return 413
    if answer.status != 200 and answer.content_type == JSON:
        assert set(json.loads(text)) == {"code", "message"}
    return answer.status


async def export(
    served: Served, body: bytes, compression: grpc.Compression | None = None
) -> grpc.StatusCode:
    """Export a body over gRPC and return the code."""
    unbounded = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(served.target, options=unbounded) as channel:
        try:
            await channel.unary_unary(PATH)(body, timeout=60, compression=compression)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def damaged(seed: int) -> bytes:
    """Return a good request with some bytes changed, cut or doubled."""
    rng = random.Random(seed)
    body = bytearray(good_body())
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(body))
        action = rng.choice(("change", "cut", "double"))
        if action == "change":
            body[place] = rng.randrange(256)
        elif action == "cut":
            del body[place : place + rng.randint(1, 9)]
        else:
            body[place:place] = body[place : place + rng.randint(1, 9)]
    return bytes(body)


_bodies = st.one_of(
    st.binary(max_size=300),
    st.integers(0, 10**9).map(damaged),
    st.integers(0, 10**9).map(lambda seed: gzip.compress(damaged(seed))),
    st.integers(0, 10**9).map(lambda seed: gzip.compress(damaged(seed))[:-6]),
    st.text('{}[]":,0123456789resourceSpans ', max_size=100).map(str.encode),
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    bodies=st.lists(st.tuples(_bodies, st.sampled_from(["", "gzip", "br"])), min_size=1, max_size=6)
)
def test_malformed_bodies(bodies: list[tuple[bytes, str]]) -> None:
    """Any bytes, in any encoding, are taken or refused for good, never an error of ours."""

    async def attack() -> None:
        async with beside_a_good_client() as served:
            for body, encoding in bodies:
                for content_type in (PROTOBUF, JSON):
                    assert await post(served, body, content_type, encoding) in {200, 400, 413}
                code = await export(served, body)
                assert code is grpc.StatusCode.OK or code in REFUSALS_GRPC

    asyncio.run(attack())


async def test_bombs_and_giants() -> None:
    """Gzip bombs and 64 MB bodies are refused by both, while others are served."""
    bomb = gzip.compress(bytes(100 << 20))
    async with beside_a_good_client() as served:
        assert await post(served, bomb, PROTOBUF, "gzip") == 413
        assert await post(served, bytes(64 << 20), PROTOBUF) == 413
        assert await export(served, bytes(64 << 20)) is grpc.StatusCode.RESOURCE_EXHAUSTED
        code = await export(served, bytes(100 << 20), grpc.Compression.Gzip)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_slow_clients_of_both_kinds() -> None:
    """Many clients that begin and never finish are cut off; the good one goes on."""
    limits = Limits(read_timeout_s=2.0, concurrent_requests=2)
    async with beside_a_good_client(limits) as served:
        port = int(served.url.split(":")[2].split("/")[0])
        head = f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: {PROTOBUF}\r\n"
        writers = []
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"{head}Content-Length: 1000\r\n\r\nxx".encode())
            writers.append((reader, writer))

        async def never() -> AsyncIterator[bytes]:
            await asyncio.sleep(600)
            yield b""

        async with grpc.aio.insecure_channel(served.target) as channel:
            calls = [asyncio.ensure_future(channel.stream_unary(PATH)(never())) for _ in range(20)]
            lines = [await reader.readline() for reader, _ in writers]
            done, _ = await asyncio.wait(calls)
        for _, writer in writers:
            writer.close()
    assert all(line.startswith(b"HTTP/1.1 408") for line in lines)
    codes = [
        error.code() for one in done if isinstance(error := one.exception(), grpc.aio.AioRpcError)
    ]
    assert len(codes) == 20
    assert set(codes) <= REFUSALS_GRPC


@pytest.mark.parametrize(
    "first",
    [b"\x1f\x8b", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01", b"GET / HTTP/1.0\r\n\r\n"],
)
async def test_other_protocols_on_our_ports(first: bytes) -> None:
    """Bytes of another protocol close a connection, nothing more."""
    async with beside_a_good_client() as served:
        for port in (served.url.split(":")[2].split("/")[0], served.target.split(":")[1]):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
            writer.write(first)
            writer.write_eof()
            async with asyncio.timeout(30):
                await reader.read()
            writer.close()
