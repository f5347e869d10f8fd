"""The HTTP client against servers that behave, of another implementation, and such that do not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from agent.http.client import HttpClient, HttpError


@contextlib.asynccontextmanager
async def scripted(*answers: bytes, keep: bool = False) -> AsyncIterator[str]:
    """Serve connections that answer whatever comes by these bytes, one after the other."""
    left = list(answers)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while left and await reader.read(1 << 16):
            writer.write(left.pop(0))
            if not keep:
                break
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@contextlib.asynccontextmanager
async def real() -> AsyncIterator[tuple[str, list[web.Request]]]:
    """Serve by aiohttp; keep what came."""
    came: list[web.Request] = []

    async def take(request: web.Request) -> web.Response:
        came.append(request)
        return web.Response(status=202, body=await request.read(), headers={"X-Case": "Kept"})

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/{any:.*}", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}", came
    finally:
        await runner.cleanup()


async def test_another_implementation_understands() -> None:
    """Path, headers, user and body arrive, over one connection; the answer comes back, cut at 64 KiB."""
    async with real() as (address, came):
        client = HttpClient(f"http://me:s%C3%A9cret@{address}/base/", None, 10.0)
        answer = await client.post("/v1/traces", b"body", {"X-Mine": "1"})
        long = await client.post("/v1/traces", bytes(1 << 20), {})
        again = await client.post("/v1/traces", b"", {})
        await client.close()
    assert (answer.status, answer.headers["x-case"], answer.body) == (202, "Kept", b"body")
    assert (long.status, len(long.body)) == (202, 1 << 16)
    assert again.body == b""
    first = came[0]
    assert (first.path, first.headers["X-Mine"], first.headers["Host"]) == (
        "/base/v1/traces", "1", address,
    )  # fmt: skip
    assert first.headers["Authorization"] == "Basic bWU6c8OpY3JldA=="
    assert len({id(one.transport) for one in came[:2]}) == 1


async def test_a_connection_that_was_closed_meanwhile_is_made_again() -> None:
    """A server may close between two requests at any time."""
    good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with scripted(good, good) as url:
        client = HttpClient(url, None, 10.0)
        assert (await client.post("/", b"", {})).body == b"ok"
        await asyncio.sleep(0.05)
        assert (await client.post("/", b"", {})).body == b"ok"
        await client.close()


async def test_an_answer_before_the_end_of_the_body_is_read() -> None:
    """A server that refuses a body unread is heard."""
    refusal = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"
    async with scripted(refusal, keep=True) as url:
        client = HttpClient(url, None, 10.0)
        assert (await client.post("/", bytes(32 << 20), {})).status == 413
        await client.close()


@pytest.mark.parametrize(
    "answer",
    [b"", b"\x00\xff no HTTP at all\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"],
)
async def test_what_is_no_answer_is_an_error(answer: bytes) -> None:
    """Nothing, garbage, half an answer; the next request begins anew."""
    good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with scripted(answer, good) as url:
        client = HttpClient(url, None, 10.0)
        with pytest.raises(HttpError):
            await client.post("/", b"", {})
        assert (await client.post("/", b"", {})).body == b"ok"
        await client.close()


async def test_silence_is_a_timeout() -> None:
    """A server that does not answer is left after the time-out, and asked anew."""
    good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with scripted(b"", good, keep=True) as url:
        client = HttpClient(url, None, 0.2)
        with pytest.raises(TimeoutError):
            await client.post("/", b"", {})
        assert (await client.post("/", b"", {})).body == b"ok"
        await client.close()


@pytest.mark.parametrize(
    ("name", "value"), [("X-Key", "two\nlines"), ("X Key", "a"), ("Schl\u00fcssel", "a")]
)
async def test_a_header_that_cannot_be_sent_is_an_error(name: str, value: str) -> None:
    """It is told as one, and nothing of it is sent."""
    async with real() as (address, came):
        client = HttpClient(f"http://{address}", None, 10.0)
        with pytest.raises(HttpError):
            await client.post("/", b"", {name: value})
        assert (await client.post("/", b"", {})).status == 202
        await client.close()
    assert len(came) == 1
