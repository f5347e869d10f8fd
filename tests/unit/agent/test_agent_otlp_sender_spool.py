"""A sender with a spool: what cannot be sent waits on disk, in order, over restarts, and nothing is sent twice."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from agent.otlp.batch import BATCH_HEADER
from agent.otlp.codec import Signal
from agent.otlp.sender import Sender, SenderLimits
from agent.otlp.spool import SpoolSettings

Until = Callable[[Callable[[], object]], Awaitable[None]]


@dataclass
class Backend:
    """Takes every body, or answers a status, or hangs while `hanging`."""

    status: int = 200
    hanging: bool = False
    pause_s: float = 0.0
    port: int = 0
    bodies: list[bytes] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer as told."""
        body = await request.read()
        self.ids.append(request.headers[BATCH_HEADER])
        await asyncio.sleep(self.pause_s)
        while self.hanging:  # noqa: ASYNC110  the test ends it
            await asyncio.sleep(0.01)
        if self.status == 200:
            self.bodies.append(body)
        return web.Response(status=self.status)


@contextlib.asynccontextmanager
async def backend(port: int = 0) -> AsyncIterator[Backend]:
    """Serve a back end on a port."""
    served = Backend()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/{path:.*}", served.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    served.port = runner.addresses[0][1]
    try:
        yield served
    finally:
        served.hanging = False
        await runner.cleanup()


def sender_to(port: int, folder: Path, **limits: float) -> Sender:
    """Return a sender with a quick back-off and a spool."""
    bounds = SenderLimits(**({"backoff_max_s": 0.02, "flush_s": 0.2} | limits))  # type: ignore[arg-type]
    return Sender(
        f"http://127.0.0.1:{port}",
        bounds,
        spool=SpoolSettings(folder, 1 << 20),
        rng=random.Random(1),
    )


def bodies(*numbers: int) -> list[bytes]:
    """Return the bodies of numbered batches."""
    return [b"%d" % number for number in numbers]


async def test_nothing_is_written_while_the_back_end_takes_it(tmp_path: Path, until: Until) -> None:
    """A healthy back end costs no disk."""
    async with backend() as served:
        sender = sender_to(served.port, tmp_path / "s", spool_after_s=60)
        running = asyncio.create_task(sender.run())
        for number in range(20):
            sender.offer(Signal.TRACES, b"%d" % number, 1)
            await asyncio.sleep(0)
        await until(lambda: sender.stats.sent == 20)
        assert not (tmp_path / "s").exists()
        await sender.close()
        await running
    assert served.bodies == bodies(*range(20))


async def test_an_outage_goes_over_the_disk_in_order(tmp_path: Path, until: Until) -> None:
    """Batches before, during and after an outage arrive once each, oldest first."""
    async with backend() as served:
        sender = sender_to(served.port, tmp_path / "s")
        running = asyncio.create_task(sender.run())
        served.status = 503
        for number in range(30):
            sender.offer(Signal.TRACES, b"%d" % number, 1)
            await asyncio.sleep(0.001)
        await until(lambda: sender.spool is not None and sender.spool.items.total() == 30)
        served.status = 200
        sender.offer(Signal.TRACES, b"30", 1)
        await until(lambda: sender.stats.sent == 31)
        await sender.close()
        await running
    assert served.bodies == bodies(*range(31))
    assert not (tmp_path / "s").exists()
    assert not sender.stats.losses


async def test_a_hang_spools_what_waits_behind_it(tmp_path: Path, until: Until) -> None:
    """A request that takes long sends the queue to the disk before it fails."""
    async with backend() as served:
        served.hanging = True
        sender = sender_to(served.port, tmp_path / "s", spool_after_s=0.05)
        running = asyncio.create_task(sender.run())
        for number in range(3):
            sender.offer(Signal.TRACES, b"%d" % number, 1)
        await until(lambda: sender.spool is not None and sender.spool.items.total() == 3)
        assert sender.stats.retries == 0
        served.hanging = False
        await until(lambda: sender.stats.sent == 3)
        await sender.close()
        await running
    assert served.bodies == bodies(0, 1, 2)


async def test_a_back_end_that_is_too_slow_spools_what_piles_up(
    tmp_path: Path, until: Until
) -> None:
    """Where the queue does not come to an end it is on disk, though every request is answered in time."""
    async with backend() as served:
        served.pause_s = 0.05
        sender = sender_to(served.port, tmp_path / "s", spool_after_s=0.2)
        running = asyncio.create_task(sender.run())
        for number in range(40):
            sender.offer(Signal.TRACES, b"%d" % number, 1)
        await until(lambda: sender.spool is not None and sender.spool)
        assert sender.stats.retries == 0
        served.pause_s = 0.0
        await until(lambda: sender.stats.sent == 40)
        await sender.close()
        await running
    assert served.bodies == bodies(*range(40))


async def test_shutdown_leaves_it_to_the_next_process(tmp_path: Path, until: Until) -> None:
    """What the flush cannot send is not lost but sent after a restart, under the same ids."""
    async with backend() as served:
        served.status = 503
        first = sender_to(served.port, tmp_path / "s")
        running = asyncio.create_task(first.run())
        for number in range(3):
            first.offer(Signal.TRACES, b"%d" % number, 1)
        await until(lambda: first.stats.retries)
        await first.close()
        await running
        assert not first.stats.losses
        served.status = 200
        second = sender_to(served.port, tmp_path / "s")
        running = asyncio.create_task(second.run())
        await until(lambda: second.stats.sent == 3)
        await second.close()
        await running
    assert served.bodies == bodies(0, 1, 2)
    assert len(set(served.ids)) == 3


async def test_a_burst_above_the_memory_goes_to_the_disk(tmp_path: Path, until: Until) -> None:
    """What does not fit into memory is not lost while the disk has room."""
    async with backend() as served:
        sender = sender_to(served.port, tmp_path / "s", queued_items=5)
        for number in range(20):
            assert sender.offer(Signal.TRACES, b"%d" % number, 1)
        running = asyncio.create_task(sender.run())
        await until(lambda: sender.stats.sent == 20)
        assert sender.spool is not None
        assert sender.spool.off == ""
        await sender.close()
        await running
    assert served.bodies == bodies(*range(20))
    assert not sender.stats.losses


async def test_memory_goes_on_where_the_disk_does_not(tmp_path: Path, until: Until) -> None:
    """Without a usable folder the queue is the memory's, with its bounds and its losses."""
    (tmp_path / "file").write_text("")
    async with backend() as served:
        served.status = 503
        sender = sender_to(served.port, tmp_path / "file" / "s", queued_items=5)
        running = asyncio.create_task(sender.run())
        await until(lambda: sender.spool is not None and sender.spool.off)
        for number in range(8):
            sender.offer(Signal.LOGS, b"%d" % number, 1)
        await until(lambda: sender.stats.retries > 1)
        served.status = 200
        await until(lambda: not sender.queued_items and sender.stats.sent)
        await sender.close()
        await running
    assert sender.stats.sent + sender.stats.losses[Signal.LOGS, "overflow"] == 8
    assert served.bodies[-1] == b"7"


async def test_refused_batches_leave_the_spool(tmp_path: Path, until: Until) -> None:
    """A batch that the back end will never take does not come back after a restart."""
    async with backend() as served:
        served.status = 503
        sender = sender_to(served.port, tmp_path / "s")
        running = asyncio.create_task(sender.run())
        sender.offer(Signal.TRACES, b"0", 4)
        await until(lambda: sender.spool is not None and sender.spool)
        served.status = 400
        await until(lambda: sender.stats.losses)
        assert sender.stats.losses == {(Signal.TRACES, "refused"): 4}
        assert sender.queued_items == 0
        await sender.close()
        await running
