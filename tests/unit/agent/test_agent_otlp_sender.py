"""The sender retries what the specification lets it, drops the oldest, and counts every loss."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from agent.otlp.codec import Signal
from agent.otlp.retry import Retry, backoff_s, retry_after_s
from agent.otlp.sender import Sender, SenderLimits

Until = Callable[[Callable[[], object]], Awaitable[None]]


class Backend:
    """An HTTP server that answers a script of statuses, then 200."""

    def __init__(self, script: list[int]) -> None:
        self.script = script
        self.headers: dict[str, str] = {}
        self.answer = b""
        self.bodies: list[tuple[str, bytes]] = []
        self.times_s: list[float] = []
        self.port = 0

    async def handle(self, request: web.Request) -> web.Response:
        """Answer the next status of the script."""
        self.bodies.append((request.path, await request.read()))
        self.times_s.append(time.monotonic())
        status = self.script.pop(0) if self.script else 200
        return web.Response(status=status, headers=self.headers, body=self.answer)


@contextlib.asynccontextmanager
async def backend(*script: int, port: int = 0) -> AsyncIterator[Backend]:
    """Serve a backend on a port."""
    served = Backend(list(script))
    app = web.Application()
    app.router.add_post("/{path:.*}", served.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    served.port = runner.addresses[0][1]
    try:
        yield served
    finally:
        await runner.cleanup()


def sender_to(port: int, **limits: float) -> Sender:
    """Return a sender with a quick back-off."""
    bounds = SenderLimits(**({"backoff_max_s": 0.02} | limits))  # type: ignore[arg-type]
    return Sender(f"http://127.0.0.1:{port}/", bounds, rng=random.Random(1))


async def finish(sender: Sender, until: Until) -> None:
    """Run a sender until all it holds is sent or lost."""
    running = asyncio.create_task(sender.run())
    await until(lambda: not sender.queued_items)
    await sender.close()
    await running


async def test_sends_in_order(until: Until) -> None:
    """Requests arrive at their signal's path, oldest first."""
    async with backend() as served:
        sender = sender_to(served.port)
        sender.offer(Signal.TRACES, b"one", 1)
        sender.offer(Signal.METRICS, b"two", 2)
        await finish(sender, until)
    assert served.bodies == [("/v1/traces", b"one"), ("/v1/metrics", b"two")]
    assert (sender.stats.sent, dict(sender.stats.dropped)) == (3, {})


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_retryable_statuses_are_retried(status: int, until: Until) -> None:
    """The four retryable statuses lose nothing."""
    async with backend(status, status) as served:
        sender = sender_to(served.port)
        sender.offer(Signal.TRACES, b"one", 1)
        await finish(sender, until)
    assert [body for _, body in served.bodies] == [b"one"] * 3
    assert (sender.stats.sent, sender.stats.retries) == (1, 2)


@pytest.mark.parametrize("status", [400, 404, 408, 413, 500, 302])
async def test_other_statuses_are_dropped_and_counted(status: int, until: Until) -> None:
    """A status that is not retryable is tried once."""
    async with backend(status) as served:
        sender = sender_to(served.port)
        sender.offer(Signal.TRACES, b"one", 4)
        await finish(sender, until)
    assert len(served.bodies) == 1
    assert dict(sender.stats.dropped) == {"refused": 4}


async def test_retry_after_is_honoured(until: Until) -> None:
    """The back end's own delay replaces the back-off."""
    async with backend(503) as served:
        served.headers = {"Retry-After": "1"}
        sender = sender_to(served.port)
        sender.offer(Signal.TRACES, b"one", 1)
        running = asyncio.create_task(sender.run())
        await until(lambda: len(served.bodies) == 2)
        await sender.close()
        await running
    assert served.times_s[1] - served.times_s[0] >= 0.99


async def test_back_end_that_starts_late_gets_everything(until: Until) -> None:
    """Connection errors are retried until the back end is there."""
    async with backend() as probe:
        port = probe.port
    sender = sender_to(port)
    running = asyncio.create_task(sender.run())
    sender.offer(Signal.TRACES, b"one", 1)
    await until(lambda: sender.stats.retries)
    async with backend(port=port) as served:
        await until(lambda: sender.stats.sent)
        await sender.close()
        await running
    assert served.bodies == [("/v1/traces", b"one")]


async def test_partial_success_counts_the_rejected(until: Until) -> None:
    """What a 200 rejects is counted as lost."""
    answer = trace_service_pb2.ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 2
    async with backend() as served:
        served.answer = answer.SerializeToString()
        sender = sender_to(served.port)
        sender.offer(Signal.TRACES, b"one", 5)
        await finish(sender, until)
    assert (sender.stats.sent, dict(sender.stats.dropped)) == (3, {"rejected": 2})


async def test_garbage_answer_is_a_success(until: Until) -> None:
    """A 200 with an unreadable body counts as sent."""
    async with backend() as served:
        served.answer = b"\xff\xff<html>"
        sender = sender_to(served.port)
        sender.offer(Signal.LOGS, b"one", 5)
        await finish(sender, until)
    assert sender.stats.sent == 5


async def test_overflow_drops_the_oldest_items(until: Until) -> None:
    """Past the bound on items the oldest batch makes room."""
    async with backend() as served:
        sender = sender_to(served.port, queued_items=5)
        assert sender.offer(Signal.TRACES, b"one", 3)
        assert sender.offer(Signal.TRACES, b"two", 3)
        await finish(sender, until)
    assert served.bodies == [("/v1/traces", b"two")]
    assert dict(sender.stats.dropped) == {"overflow": 3}


async def test_overflow_by_bytes() -> None:
    """Past the bound on bytes the oldest batch makes room."""
    sender = sender_to(1, queued_bytes=5)
    sender.offer(Signal.TRACES, b"one", 1)
    sender.offer(Signal.TRACES, b"two", 2)
    assert (sender.queued_items, dict(sender.stats.dropped)) == (2, {"overflow": 1})


async def test_one_body_past_the_bound_is_refused() -> None:
    """What could never fit is refused at once and pushes nothing out."""
    sender = sender_to(1, queued_bytes=5)
    sender.offer(Signal.TRACES, b"one", 1)
    assert not sender.offer(Signal.TRACES, b"sixsix", 2)
    assert (sender.queued_items, dict(sender.stats.dropped)) == (1, {"too_large": 2})


async def test_close_gives_up_in_time_and_counts(until: Until) -> None:
    """With the back end away, closing takes about the flush time and counts what it lost."""
    async with backend() as probe:
        port = probe.port
    sender = sender_to(port, flush_s=0.3)
    sender.offer(Signal.TRACES, b"one", 1)
    sender.offer(Signal.TRACES, b"two", 2)
    running = asyncio.create_task(sender.run())
    await until(lambda: sender.stats.retries)
    await sender.close()
    await asyncio.wait_for(running, 10)
    assert dict(sender.stats.dropped) == {"shutdown": 3}
    assert not sender.offer(Signal.TRACES, b"late", 1)


async def test_close_cuts_a_hanging_request_short(until: Until) -> None:
    """A back end that never answers does not hold up the shutdown."""

    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    sender = sender_to(server.sockets[0].getsockname()[1], flush_s=0.3)
    sender.offer(Signal.TRACES, b"one", 1)
    running = asyncio.create_task(sender.run())
    await until(lambda: not sender.queued_items)
    await sender.close()
    await asyncio.wait_for(running, 10)
    server.close()
    assert dict(sender.stats.dropped) == {"shutdown": 1}


async def test_cancelling_run_counts_what_is_lost(until: Until) -> None:
    """A sender that is cancelled accounts for what it held."""
    async with backend() as probe:
        port = probe.port
    sender = sender_to(port)
    sender.offer(Signal.TRACES, b"one", 1)
    running = asyncio.create_task(sender.run())
    await until(lambda: sender.stats.retries)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert dict(sender.stats.dropped) == {"shutdown": 1}


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("7", 7.0),
        ("100000", 300.0),
        ("Tue, 14 Nov 2023 22:13:25 GMT", 5.0),
        ("Tue, 14 Nov 2023 22:13:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("²", None),
    ],
)
def test_retry_after_spellings(header: str | None, expected: float | None) -> None:
    """Seconds and HTTP dates are read; nonsense falls back to the back-off."""
    assert retry_after_s(header, 1700000000.0, 300.0) == expected


def test_backoff_doubles_to_a_ceiling() -> None:
    """The wait doubles, loses up to half by jitter, and never passes the ceiling."""
    rng = random.Random(3)
    waits = [backoff_s(attempt, Retry("away"), 4.0, rng) for attempt in (0, 1, 2, 3, 60)]
    ceilings = [0.5, 1.0, 2.0, 4.0, 4.0]
    assert all(c / 2 <= wait <= c for wait, c in zip(waits, ceilings, strict=True))
