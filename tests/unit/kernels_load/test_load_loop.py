"""The open loop and what it counts."""

import asyncio
from collections.abc import Iterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kernels.errors import WorkloadError
from kernels.load.client import Client
from kernels.load.generator import LoopConfig, OpenLoop
from kernels.load.plan import Planned
from kernels.load.tally import Answer, Outcome, Tally, quantile

ASK = Planned(0.0, "prompt", 3, "tenant-0001")


def every(gap_s: float, count: int) -> Iterator[Planned]:
    """Plan departures at an even pace."""
    return (Planned(index * gap_s, "prompt", 8, "tenant-0000") for index in range(count))


class Slow:
    """A server that takes its time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.most = 0
        self._now = 0

    async def send(self, planned: Planned) -> Answer:
        """Count who waits at the same time."""
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self._now -= 1
        return Answer(Outcome.OK, 0.01, self.seconds)


def silent(tally: Tally, at_s: float) -> None:
    """Report nothing."""


async def test_departures_do_not_wait_for_answers() -> None:
    """Ten requests leave while the first is still unanswered."""
    slow = Slow(0.5)
    loop = OpenLoop(slow, LoopConfig(), silent)

    await loop.run(every(0.01, 10), asyncio.Event())

    assert slow.most == 10
    assert loop.tally.counts() == {"sent": 10, "ok": 10, "rejected": 0, "failed": 0}


async def test_requests_past_the_limit_are_dropped_and_count_as_failed() -> None:
    """The generator's memory is bounded, and what it holds back is no success."""
    loop = OpenLoop(Slow(0.5), LoopConfig(max_in_flight=3), silent)

    await loop.run(every(0.001, 10), asyncio.Event())

    assert loop.tally.dropped == 7
    assert loop.tally.counts() == {"sent": 10, "ok": 3, "rejected": 0, "failed": 7}


async def test_a_hung_server_ends_the_run_all_the_same() -> None:
    """What is unanswered at the end has failed."""
    loop = OpenLoop(Slow(60), LoopConfig(linger_s=0.05), silent)

    await loop.run(every(0.001, 4), asyncio.Event())

    assert loop.tally.reasons == {"unanswered at the end": 4}


async def test_a_sender_that_is_behind_counts_late_requests() -> None:
    """Departures in the past were due before the loop ran."""
    loop = OpenLoop(Slow(0), LoopConfig(), silent)
    overdue = (Planned(-1.0, "prompt", 8, "tenant-0000") for _ in range(5))

    await loop.run(overdue, asyncio.Event())

    assert loop.tally.late == 5


async def test_stop_ends_a_long_plan() -> None:
    """SIGTERM does not wait for the next departure."""
    stop = asyncio.Event()
    loop = OpenLoop(Slow(0), LoopConfig(), silent)
    asyncio.get_running_loop().call_later(0.05, stop.set)

    await asyncio.wait_for(loop.run(every(30.0, 10), stop), 10)

    assert loop.tally.sent == 1


async def test_progress_is_reported_while_it_runs() -> None:
    """A line each second."""
    seen: list[float] = []
    loop = OpenLoop(Slow(0), LoopConfig(), lambda _, at_s: seen.append(at_s))

    await loop.run(every(0.3, 5), asyncio.Event())

    assert len(seen) == 1
    assert seen[0] >= 1.0


def test_progress_forgets_old_latencies() -> None:
    """Its quantiles are those of the last ten seconds; its counts are of the whole run."""
    tally = Tally()
    tally.add(Answer(Outcome.OK, 0.1, 5.0), at_s=1.0)
    tally.add(Answer(Outcome.OK, 0.1, 0.2), at_s=12.0)

    progress = tally.progress(13.0)

    assert (progress["ok"], progress["p99_s"]) == (2, 0.2)


def test_a_rejection_is_no_fast_request() -> None:
    """A 429 does not enter the latencies."""
    tally = Tally()
    tally.add(Answer(Outcome.REJECTED), at_s=1.0)

    assert tally.progress(1.0) == {
        "t": 1.0, "sent": 0, "ok": 0, "rejected": 1, "failed": 0, "p50_s": None, "p99_s": None,
    }  # fmt: skip


def test_quantiles_are_linear_between_ranks() -> None:
    """The definition that numpy uses by default."""
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.5
    assert quantile([1.0], 0.99) == 1.0
    assert quantile([], 0.99) is None


async def answer_with(handler: web.RequestHandler | object, ask: Planned = ASK) -> Answer:
    """Let the client send one request to a real HTTP server."""
    app = web.Application()
    app.router.add_post("/v1/completions", handler)  # type: ignore[arg-type]
    async with TestServer(app) as server, Client(str(server.make_url("/"))) as client:
        return await client.send(ask)


async def test_a_stream_is_timed_to_first_and_last_token() -> None:
    """The first event sets the first-token time, `[DONE]` the end."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'data: {"choices": []}\n\n')
        await asyncio.sleep(0.2)
        await response.write(b'data: {"choices": []}\n\ndata: [DONE]\n\n')
        return response

    answer = await answer_with(handler)

    assert answer.outcome is Outcome.OK
    assert answer.total_s - answer.first_token_s >= 0.15


async def test_the_request_has_what_the_server_needs() -> None:
    """Prompt, limit, tenant, and a stream."""
    bodies: list[object] = []

    async def handler(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        return web.Response(text="data: [DONE]\n\n")

    await answer_with(handler)

    assert bodies == [{"prompt": "prompt", "max_tokens": 3, "user": "tenant-0001", "stream": True}]


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (429, "{}", Answer(Outcome.REJECTED)),
        (503, "{}", Answer(Outcome.FAILED, reason="status 503")),
        (200, 'data: {"choices": []}\n\n', Answer(Outcome.FAILED, reason="stream cut short")),
        (200, 'data: {"error": {}}\n\n', Answer(Outcome.FAILED, reason="error in the stream")),
    ],
)
async def test_what_is_not_an_answer_is_told_apart(
    status: int, text: str, expected: Answer
) -> None:
    """Rejected, failed, cut short."""

    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status, text=text)

    assert await answer_with(handler) == expected


async def test_nobody_there_is_a_failure_of_the_request_and_of_the_check() -> None:
    """A request in a run fails; before a run it is an error that says so."""
    async with Client("http://127.0.0.1:9") as client:
        answer = await client.send(ASK)
        with pytest.raises(WorkloadError, match="no healthy server"):
            await client.check()

    assert answer.outcome is Outcome.FAILED
