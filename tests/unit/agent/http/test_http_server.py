"""The HTTP server over real sockets, by raw bytes and by another implementation's client."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest

from agent.http.connection import HttpLimits
from agent.http.message import Request, Response, Routes
from agent.http.server import Server

Until = Callable[[Callable[[], object]], Awaitable[None]]
GET = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
BIG = bytes(8 << 20)


async def hello(request: Request) -> Response:
    return Response(200, b"hello " + request.path.encode())


async def echo(request: Request) -> Response:
    return Response(200, b"".join([piece async for piece in request.body]))


async def ignore(_: Request) -> Response:
    return Response(200, b"ignored")


async def fail(_: Request) -> Response:
    raise ValueError("no")


async def big(_: Request) -> Response:
    return Response(200, BIG)


async def hang(_: Request) -> Response:
    await asyncio.sleep(600)
    return Response()


async def slow(_: Request) -> Response:
    await asyncio.sleep(0.3)
    return Response(200, b"slow")


ROUTES: Routes = {
    "/hello": {"GET": hello},
    "/echo": {"POST": echo},
    "/ignore": {"POST": ignore},
    "/fail": {"GET": fail},
    "/big": {"GET": big},
    "/hang": {"GET": hang},
    "/slow": {"GET": slow},
}


@contextlib.asynccontextmanager
async def serving(limits: HttpLimits | None = None) -> AsyncIterator[int]:
    """Serve on a free port."""
    server = Server(ROUTES, limits)
    port = await server.start()
    try:
        yield port
    finally:
        await server.stop()


async def raw(port: int, sent: bytes, *, eof: bool = True) -> bytes:
    """Send bytes and return all that comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    if eof:
        writer.write_eof()
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return answer


async def test_requests_share_a_connection() -> None:
    """Two requests, sent at once, are answered in their order over one connection."""
    async with serving() as port:
        answer = await raw(port, GET + GET.replace(b"hello", b"nobody"))
    assert answer.count(b"HTTP/1.1 ") == 2
    assert answer.index(b"200") < answer.index(b"404")
    assert b"\r\nDate: " in answer or b"\r\ndate: " in answer.lower()


async def test_another_implementation_is_understood() -> None:
    """Aiohttp's client: a long body, a chunked one, HEAD, and one that waits to be told to go on."""
    async with serving() as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with session.post("/echo", data=BIG) as answer:
            assert await answer.read() == BIG

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield b"x" * 1000

        async with session.post("/echo", data=pieces()) as answer:
            assert await answer.read() == b"x" * 100_000
        async with session.post("/echo", data=b"after you", expect100=True) as answer:
            assert await answer.read() == b"after you"
        async with session.head("/hello") as answer:
            assert (answer.status, answer.content_length) == (200, 12)
        async with session.get("/big") as answer:
            assert await answer.read() == BIG
        async with session.post("/hello") as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET")
        async with session.post("/ignore", data=b"x" * 100_000) as answer:
            assert await answer.read() == b"ignored"
        async with session.get("/hello") as answer:
            assert await answer.read() == b"hello /hello"


async def test_http_1_0_is_answered_and_closed() -> None:
    """The old version knows no connections that are kept."""
    async with serving() as port:
        answer = await raw(port, b"GET /hello HTTP/1.0\r\n\r\n", eof=False)
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"hello /hello")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"400"),
        (b"GET /hello HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"431"),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: ten\r\n\r\n", b"400"),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nfive.", b"400"),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
    ],
)
async def test_what_is_no_request_is_refused(sent: bytes, status: bytes) -> None:
    """The answer says so, and the connection ends."""
    async with serving() as port:
        answer = await raw(port, sent)
    assert answer.split()[1] == status


async def test_a_failing_handler_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    """It is answered and logged, and the next client is served."""
    caplog.set_level(logging.ERROR)
    async with serving() as port:
        failed = await raw(port, GET.replace(b"hello", b"fail"))
        good = await raw(port, GET)
    assert failed.startswith(b"HTTP/1.1 500")
    assert good.startswith(b"HTTP/1.1 200")
    assert "event=http_request_failed" in caplog.text


@pytest.mark.parametrize(
    ("sent", "status"), [(b"", b""), (b"GET /hel", b"408"), (GET + b"GET /hel", b"408")]
)
async def test_who_sends_nothing_more_is_let_go(sent: bytes, status: bytes) -> None:
    """Between requests in silence, in the middle of one with a word."""
    async with serving(HttpLimits(idle_s=0.2, head_s=0.2)) as port:
        answer = await raw(port, sent, eof=False)
    assert (answer.rpartition(b"HTTP/1.1 ")[2].split() or [b""])[0] == status


async def test_a_head_that_drips_is_cut_off() -> None:
    """The time for a head is that of all its bytes."""
    async with serving(HttpLimits(head_s=0.3)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        reading = asyncio.create_task(reader.read())
        for byte in GET * 100:
            if reading.done():
                break
            writer.write(bytes([byte]))
            await asyncio.sleep(0.02)
        writer.close()
        assert (await reading).startswith(b"HTTP/1.1 408")


async def test_who_does_not_read_is_let_go(until: Until) -> None:
    """An answer that nobody takes holds no connection."""
    server = Server(ROUTES, HttpLimits(write_s=0.3))
    port = await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    writer.write(GET.replace(b"hello", b"big"))
    await until(lambda: server._connections)
    await until(lambda: not server._connections)
    assert not reader.at_eof()
    writer.close()
    await server.stop()


async def test_connections_are_bounded(until: Until) -> None:
    """One too many is told to come back, and counted; once one has gone there is room."""
    server = Server(ROUTES, HttpLimits(connections=2))
    port = await server.start()
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    await until(lambda: len(server._connections) == 2)
    assert (await raw(port, GET)).startswith(b"HTTP/1.1 503")
    assert server.refused == 1
    streams[0][1].close()
    await until(lambda: len(server._connections) == 1)
    assert (await raw(port, GET)).startswith(b"HTTP/1.1 200")
    streams[1][1].close()
    await server.stop()


async def test_stopping_lets_requests_finish_but_not_for_ever() -> None:
    """One at work is answered, one that hangs and one that is idle are cut off, and then nobody listens."""
    server = Server(ROUTES)
    port = await server.start()
    asked = [
        asyncio.create_task(raw(port, GET.replace(b"hello", path), eof=False))
        for path in (b"slow", b"hang")
    ]
    idle = asyncio.create_task(raw(port, GET, eof=False))
    await asyncio.sleep(0.1)
    async with asyncio.timeout(5):
        await server.stop()
    finished, hung = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(finished, bytes)
    assert finished.endswith(b"slow")
    assert hung == b"" or isinstance(hung, OSError)
    assert (await idle).endswith(b"hello /hello")
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", port)
