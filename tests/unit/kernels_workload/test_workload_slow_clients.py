"""Clients that take their time, in reading and in writing, and crowds of them."""

import asyncio
import json
import resource
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from kernels.workload.bodies import Bodies, BodyLimits
from kernels.workload.openai_api import ApiError
from kernels.workload.places import Places
from tests.support.otlp_collector import attributes, collecting
from tests.support.workload_process import Server, metric, serving, until

NARROW = ("send_buffer_bytes=4096", "prompt_cache=0", "max_running=1", "max_queue=0")
TOKENS = 256
CROWD = 10_000
GROWTH_KIB = 400 * 1024
"""An open connection takes about 11 KiB, so that this is a bound with room to spare."""


class SlowReader:
    """A client that asks for a long stream and reads nothing until it is told to."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self._socket.settimeout(60)
        self._socket.connect(("127.0.0.1", int(server.url.rsplit(":", 1)[1])))
        body = json.dumps({"prompt": "slow", "max_tokens": TOKENS, "stream": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
        self._socket.sendall(head.encode() + b"Connection: close\r\n\r\n" + body)

    def rest(self) -> bytes:
        """Read all of it."""
        parts = []
        try:
            while part := self._socket.recv(65536):
                parts.append(part)
        except ConnectionResetError:
            pass  # cut off, as one of the tests wants it
        self._socket.close()
        return b"".join(parts)


def requests_of(server: Server) -> list[dict[str, object]]:
    """Log lines of requests that are over."""
    return [event for event in server.log_events() if event["event"] == "request"]


async def is_idle_after(server: Server, steps: int) -> bool:
    """Tell whether the engine has made so many steps and holds no request."""
    done = await metric(server, "vllm:iteration_tokens_total_count") >= steps
    return done and not await metric(server, "vllm:num_requests_running")


async def test_what_a_slow_client_takes_is_not_the_service_s_time(tmp_path: Path) -> None:
    """The request span ends with the service; the time in which the client held it up stands beside it."""
    async with collecting() as collector:
        with serving(tmp_path, *NARROW, arguments=("--otlp", collector.url)) as server:
            reader = await asyncio.to_thread(SlowReader, server)
            await until(lambda: is_idle_after(server, TOKENS))
            await asyncio.sleep(0.5)
            begins_ns = time.time_ns()
            answer = await asyncio.to_thread(reader.rest)
            assert answer.count(b"data: ") == TOKENS + 1
            await until(lambda: bool(collector.named("POST /v1/completions")))
            blocked_s = await metric(server, "tailcause_workload_client_blocked_seconds_total")
    (span,) = collector.named("POST /v1/completions")
    said = attributes(list(span.attributes))
    assert said["http.response.status_code"] == 200
    assert said["tailcause.client.blocked"] == pytest.approx(blocked_s)
    assert blocked_s > 0.5
    assert span.end_time_unix_nano < begins_ns


async def test_a_client_that_takes_nothing_is_cut_off_and_holds_nobody_up(tmp_path: Path) -> None:
    """Its place is free once its tokens are made, although it has not read them; after the limit it is gone."""
    with serving(tmp_path, *NARROW, "client_wait_s=2") as server:
        reader = await asyncio.to_thread(SlowReader, server)
        await until(lambda: is_idle_after(server, TOKENS))
        async with aiohttp.ClientSession() as session:
            body = {"prompt": "me", "max_tokens": 2}
            async with session.post(f"{server.url}/v1/completions", json=body) as response:
                assert response.status == 200
        await until(lambda: len(requests_of(server)) == 2)
        assert b"[DONE]" not in await asyncio.to_thread(reader.rest)
        assert [event["error"] for event in requests_of(server)] == ["", "client_too_slow"]


async def test_requests_on_their_way_have_a_bound(tmp_path: Path) -> None:
    """Too many clients that have sent a head and no body: the next one is refused, and served once they have gone."""
    with serving(tmp_path, "max_in_flight=4") as server:
        port = int(server.url.rsplit(":", 1)[1])
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{"
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        for _, writer in held:
            writer.write(head)

        async def status() -> int:
            async with aiohttp.ClientSession() as session:
                body = {"prompt": "me", "max_tokens": 2}
                async with session.post(f"{server.url}/v1/completions", json=body) as response:
                    return response.status

        async def is_refused() -> bool:
            return await status() == 429

        async def is_served() -> bool:
            return await status() == 200

        await until(is_refused)
        for _, writer in held:
            writer.close()
        await until(is_served)


@asynccontextmanager
async def reads_bodies(bodies: Bodies) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    """Run a server that does nothing but read bodies."""

    async def handle(request: web.Request) -> web.Response:
        try:
            async with bodies.reading(request) as body:
                return web.Response(text=str(len(body)))
        except ApiError as error:
            return web.Response(status=error.status)

    app = web.Application()
    app.router.add_post("/", handle)
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_bodies_together_have_a_bound() -> None:
    """What is over the bound of all bodies is refused at once, and the room of a refused body is free again."""
    bodies = Bodies(BodyLimits(each_bytes=3000, all_bytes=4000))
    go_on = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"x" * 2500
        await go_on.wait()

    async with reads_bodies(bodies) as client:
        first = asyncio.create_task(client.post("/", data=slowly()))
        await until(lambda: bodies.held_bytes == 2500)
        assert (await client.post("/", data=b"y" * 2000)).status == 429
        assert (await client.post("/", data=b"y" * 1000)).status == 200
        assert (await client.post("/", data=b"y" * 3001)).status in (413, 429)
        go_on.set()
        assert (await first).status == 200
    assert bodies.held_bytes == 0


async def test_a_body_that_does_not_come_is_given_up() -> None:
    """A client has a while to send its body."""
    bodies = Bodies(BodyLimits(each_bytes=3000, timeout_s=0.1))

    async def never() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.sleep(30)

    async with reads_bodies(bodies) as client:
        assert (await client.post("/", data=never())).status == 408


def test_a_place_is_given_back_once() -> None:
    """Whoever comes second changes nothing."""
    places = Places(1)
    place = places.take()
    assert place is not None
    assert places.take() is None
    place.give_back()
    place.give_back()
    assert places.taken == 0


def resident_kib(server: Server) -> int:
    """Largest resident set of the server so far."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def crowd() -> int:
    """As many connections as this process may hold; 10 000 where it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(CROWD, hard - 500)


@pytest.mark.slow
async def test_a_crowd_is_refused_and_the_memory_bounded(tmp_path: Path) -> None:
    """10 000 clients at once: each is answered or refused, and the next request is served as ever."""
    with serving(tmp_path, "max_queue=64", "prompt_cache=0") as server:
        port, before_kib = int(server.url.rsplit(":", 1)[1]), resident_kib(server)
        body = b'{"prompt": "crowd", "max_tokens": 64}'
        head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"

        async def one(started: asyncio.Semaphore) -> int:
            async with started:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(head.encode() + body)
            line = await reader.readline()
            held.append(writer)  # open until all are here
            return int(line.split()[1])

        held: list[asyncio.StreamWriter] = []
        started = asyncio.Semaphore(256)
        statuses = await asyncio.gather(*(one(started) for _ in range(crowd())))
        grown_kib = resident_kib(server) - before_kib
        async with aiohttp.ClientSession() as session:
            payload = {"prompt": "after", "max_tokens": 2}
            async with session.post(f"{server.url}/v1/completions", json=payload) as response:
                assert response.status == 200
        for writer in held:
            writer.close()
    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= 66
    assert grown_kib < GROWTH_KIB
