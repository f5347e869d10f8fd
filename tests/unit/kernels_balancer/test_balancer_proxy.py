"""The balancer over real HTTP, before replicas that are small HTTP servers of this process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from kernels.balancer.backends import Backend, Backends
from kernels.balancer.balancer import Balancer
from kernels.balancer.proxy import Limits

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
NOBODY = "http://127.0.0.1:1"
LIMITS = Limits(max_in_flight=4, max_body_bytes=10_000, idle_s=20.0)


@dataclass
class Front:
    """A balancer in service: where it is, what it knows, and a client."""

    url: str
    backends: Backends
    client: aiohttp.ClientSession

    async def metric(self, name: str) -> float:
        """Sum a metric over its labels."""
        async with self.client.get(f"{self.url}/metrics") as response:
            families = text_string_to_metric_families(await response.text())
        return sum(one.value for family in families for one in family.samples if one.name == name)


@asynccontextmanager
async def front(*replicas: Handler | str) -> AsyncIterator[Front]:
    """Serve a balancer before these handlers or URLs; nothing checks their health."""
    async with AsyncExitStack() as stack:
        backends = []
        for number, replica in enumerate(replicas):
            url = replica if isinstance(replica, str) else await _serve(stack, replica)
            backends.append(Backend(f"chat-{number}", url))
        session = await stack.enter_async_context(
            aiohttp.ClientSession(
                auto_decompress=False, connector=aiohttp.TCPConnector(force_close=True)
            )
        )
        all_of_them = Backends(backends)
        server = TestServer(Balancer(all_of_them, session, LIMITS).application())
        await stack.enter_async_context(server)
        client = await stack.enter_async_context(aiohttp.ClientSession())
        yield Front(str(server.make_url("")).rstrip("/"), all_of_them, client)


async def _serve(stack: AsyncExitStack, handler: Handler) -> str:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    server = await stack.enter_async_context(TestServer(app))
    return str(server.make_url("")).rstrip("/")


async def echo(request: web.Request) -> web.StreamResponse:
    """Answer with what came in."""
    seen = {k.lower(): v for k, v in request.headers.items()}
    body = (await request.read()).decode()
    return web.json_response(
        {"path": request.raw_path, "headers": seen, "body": body},
        status=418,
        headers={"X-Own": "kept", "Keep-Alive": "timeout=5"},
    )


async def busy(_: web.Request) -> web.StreamResponse:
    """Refuse as a server that drains."""
    return web.Response(status=503, text="draining")


@dataclass
class Stuck:
    """A replica that takes requests and does not answer."""

    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, _: web.Request) -> web.StreamResponse:
        """Wait for ever."""
        self.came.set()
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_request_goes_through_whole() -> None:
    """Path, body, status and end-to-end headers are the same on both sides; trace context is not touched."""
    context = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "x=y"}
    sent = {**context, "X-Request-Id": "mine-1", "Connection": "X-Hop", "X-Hop": "gone"}
    async with front(echo) as balancer:
        url = URL(f"{balancer.url}/v1/completions?a=%2F&b", encoded=True)
        async with balancer.client.post(url, data=b"body", headers=sent) as response:
            answer, headers, status = await response.json(), response.headers, response.status
    assert (status, answer["path"], answer["body"]) == (418, "/v1/completions?a=%2F&b", "body")
    assert {**context, "x-request-id": "mine-1"}.items() <= answer["headers"].items()
    assert {"x-hop", "keep-alive"}.isdisjoint(answer["headers"])
    assert answer["headers"]["x-forwarded-for"] == "127.0.0.1"
    assert (headers["X-Request-Id"], headers["X-Served-By"]) == ("mine-1", "chat-0")
    assert (headers["X-Own"], "Keep-Alive" in headers) == ("kept", False)


async def test_an_id_is_made_where_none_can_be_used() -> None:
    """An unprintable id would end up in a log line."""
    async with front(echo) as balancer:
        ids = []
        for given in ({}, {"X-Request-Id": "a b"}, {"X-Request-Id": "x" * 500}):
            async with balancer.client.get(balancer.url, headers=given) as response:
                ids.append(response.headers["X-Request-Id"])
    assert len(set(ids)) == 3
    assert all(len(one) == 32 for one in ids)


async def test_streams_pass_piece_by_piece() -> None:
    """The first token is at the client before the replica has made the second."""
    go_on = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await go_on.wait()
        await response.write(b"data: 2\n\n")
        return response

    async with front(stream) as balancer, balancer.client.post(balancer.url) as response:
        first = await response.content.readany()
        go_on.set()
        rest = await response.content.read()
    assert (first, rest) == (b"data: 1\n\n", b"data: 2\n\n")


@pytest.mark.parametrize("first", [NOBODY, busy])
async def test_what_one_replica_cannot_take_the_next_one_gets(first: Handler | str) -> None:
    """Refused connections and 503 cost the client nothing, and are counted."""
    async with front(first, echo) as balancer:
        statuses = []
        for _ in range(4):
            async with balancer.client.post(balancer.url, data=b"x") as response:
                statuses.append((response.status, response.headers["X-Served-By"]))
        retries = await balancer.metric("tailcause_balancer_retries_total")
    assert statuses == [(418, "chat-1")] * 4
    assert retries >= 1


async def test_a_replica_that_refuses_connections_is_left_alone_at_once() -> None:
    """Only the first request finds out."""
    async with front(NOBODY, echo) as balancer:
        for _ in range(6):
            async with balancer.client.get(balancer.url) as response:
                await response.read()
        retries = await balancer.metric("tailcause_balancer_retries_total")
        healthy = [one.healthy for one in balancer.backends.all]
    assert (retries, healthy) == (1, [False, True])


async def test_a_request_leaves_a_replica_that_goes_down_before_its_first_byte() -> None:
    """It does not wait for one that hangs."""
    stuck = Stuck()
    async with front(stuck.answer, echo) as balancer:
        balancer.backends.all[1].in_flight = 1
        asked = asyncio.create_task(balancer.client.post(f"{balancer.url}/x", data=b"b"))
        await stuck.came.wait()
        balancer.backends.all[0].fall("hung")
        response = await asked
        assert (response.status, response.headers["X-Served-By"]) == (418, "chat-1")
        assert balancer.backends.all[0].in_flight == 0


async def test_nothing_is_tried_twice_after_the_first_byte() -> None:
    """An answer that breaks off reaches the client as broken off, and no other replica hears of it."""
    asked = 0

    async def breaks(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return response

    async with front(breaks, breaks) as balancer:
        async with balancer.client.get(balancer.url) as response:
            with pytest.raises(aiohttp.ClientError):
                await response.read()
        assert asked == 1
        assert await balancer.metric("tailcause_balancer_cut_total") == 1


async def test_with_nobody_there_the_answer_is_503() -> None:
    """In OpenAI's shape, with Retry-After."""
    async with (
        front(NOBODY, f"http://127.0.0.1:{unused_port()}") as balancer,
        balancer.client.post(f"{balancer.url}/v1/completions", data=b"{}") as response,
    ):
        error = (await response.json())["error"]
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
        assert (error["type"], error["code"]) == ("server_error", "unreachable")
        async with balancer.client.get(f"{balancer.url}/healthz") as health:
            assert health.status == 503


async def test_a_lone_replica_that_is_busy_says_so_itself() -> None:
    """There is nobody else to ask, so its own 503 goes through."""
    async with front(busy) as balancer, balancer.client.get(f"{balancer.url}/x") as response:
        assert (response.status, await response.text()) == (503, "draining")


async def test_a_body_too_large_is_refused() -> None:
    """Bodies are kept until somebody has begun to answer, so they are bounded."""
    async with (
        front(echo) as balancer,
        balancer.client.post(balancer.url, data=b"x" * 20_000) as response,
    ):
        assert (response.status, (await response.json())["error"]["code"]) == (
            413,
            "body_too_large",
        )


async def test_more_than_the_limit_in_flight_are_refused() -> None:
    """What is held open is bounded; those within the limit are not disturbed."""
    stuck = Stuck()
    async with front(stuck.answer) as balancer:
        held = [
            asyncio.create_task(balancer.client.get(f"{balancer.url}/{number}"))
            for number in range(LIMITS.max_in_flight)
        ]
        while balancer.backends.all[0].in_flight < LIMITS.max_in_flight:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        async with balancer.client.get(f"{balancer.url}/more") as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "1")
        assert not any(one.done() for one in held)
        for one in held:
            one.cancel()
        await asyncio.gather(*held, return_exceptions=True)


async def test_a_client_that_leaves_frees_the_replica() -> None:
    """Its connection to the replica is closed too."""
    stuck = Stuck()
    async with front(stuck.answer) as balancer:
        asked = asyncio.create_task(balancer.client.get(balancer.url))
        await stuck.came.wait()
        asked.cancel()
        async with asyncio.timeout(20):
            while balancer.backends.all[0].in_flight:  # noqa: ASYNC110 - another task decides
                await asyncio.sleep(0.01)
