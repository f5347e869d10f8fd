"""The way into a server, with the true socket and a lock of the test's own."""

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.workload.backend import Batch
from kernels.workload.disturbances import Pace, PacedBackend
from kernels.workload.hook import Hook
from kernels.workload.hook_requests import (
    CollectGarbage,
    HoldLock,
    HookReply,
    HookRequest,
    SlowSteps,
    StallSteps,
)

BATCH = Batch(0, np.zeros((1, 1), np.int64), np.zeros(1, np.int64), np.ones(1, np.int64))


class Still:
    """A runtime whose steps take ten milliseconds."""

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Take the time."""
        time.sleep(0.01)
        return np.zeros((len(batch.past), 2), np.float32)

    def move(self, source: int, target: int, length: int) -> None:
        """Move nothing."""

    def save(self, row: int, start: int, block: int) -> None:
        """Save nothing."""

    def load(self, row: int, blocks: Sequence[int], held: int) -> None:
        """Load nothing."""


@asynccontextmanager
async def hooked(folder: Path, pace: Pace, lock: threading.Lock) -> AsyncIterator[Path]:
    """Open a hook."""
    hook = Hook(folder / "a.hook", pace, lock)
    await hook.open()
    try:
        yield folder / "a.hook"
    finally:
        await hook.close()


@asynccontextmanager
async def asked(path: Path, request: HookRequest) -> AsyncIterator[None]:
    """Ask and wait until it is in force; at the end hang up and wait until it is undone."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(msgspec.json.encode(request) + b"\n")
    assert await reply(reader) == HookReply("disturbed")
    yield
    writer.write_eof()
    assert await reply(reader) == HookReply("undone")
    writer.close()


async def reply(reader: asyncio.StreamReader) -> HookReply:
    """Read one reply."""
    return msgspec.json.decode(await reader.readline(), type=HookReply)


def step_s(backend: PacedBackend) -> float:
    """Seconds of the best of a few steps."""

    def once() -> float:
        started = time.perf_counter()
        backend.forward(BATCH)
        return time.perf_counter() - started

    return min(once() for _ in range(3))


async def test_steps_are_slow_as_long_as_the_connection_is_open(tmp_path: Path) -> None:
    """Ten times as slow, and as quick as ever afterwards."""
    pace = Pace()
    backend = PacedBackend(Still(), pace)
    async with hooked(tmp_path, pace, threading.Lock()) as path, asked(path, SlowSteps(10.0)):
        assert step_s(backend) > 0.09

    assert pace.factor == 1.0


async def test_a_stalled_step_ends_with_the_stall(tmp_path: Path) -> None:
    """It waits in the runtime, and its logits come out in the end."""
    pace = Pace()
    backend = PacedBackend(Still(), pace)
    async with hooked(tmp_path, pace, threading.Lock()) as path:
        async with asked(path, StallSteps()):
            step = asyncio.create_task(asyncio.to_thread(backend.forward, BATCH))
            _, waiting = await asyncio.wait({step}, timeout=0.2)
            assert waiting
        assert (await asyncio.wait_for(step, 10)).shape == (1, 2)


async def test_the_lock_is_held_and_let_go(tmp_path: Path) -> None:
    """Somebody else has it most of the time, then nobody."""
    lock = threading.Lock()
    request = HoldLock(hold_s=0.2, pause_s=0.01)
    async with hooked(tmp_path, Pace(), lock) as path, asked(path, request):
        seen = []
        for _ in range(40):
            await asyncio.sleep(0.02)
            seen.append(lock.locked())
        assert sum(seen) > len(seen) / 2

    assert not lock.locked()


async def test_the_collector_runs_until_it_is_stopped(tmp_path: Path) -> None:
    """Its generation-two collections are counted by the interpreter itself."""
    async with hooked(tmp_path, Pace(), threading.Lock()) as path:
        before = gc.get_stats()[2]["collections"]
        async with asked(path, CollectGarbage(objects=50_000, pause_s=0.01)):
            await asyncio.sleep(0.3)
            assert gc.get_stats()[2]["collections"] > before + 1


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"nonsense\n",
        b'{"disturb": "explode"}\n',
        b'{"disturb": "hold_lock", "hold_s": 1e9, "pause_s": 1}\n',
        b'{"disturb": "slow_steps", "factor": 0.5}\n',
        b'{"disturb": "collect_garbage", "objects": 10000000000, "pause_s": 1}\n',
    ],
)
async def test_what_makes_no_sense_is_refused(tmp_path: Path, line: bytes) -> None:
    """One reply with the reason, and nothing is disturbed."""
    pace = Pace()
    async with hooked(tmp_path, pace, threading.Lock()) as path:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(line)

        told = await reply(reader)

        writer.close()
    assert told.event == "refused"
    assert told.error
    assert (pace.factor, pace.running.is_set()) == (1.0, True)


async def test_closing_the_hook_ends_what_is_in_force(tmp_path: Path) -> None:
    """A server that ends lets its engine go on first."""
    pace = Pace()
    async with hooked(tmp_path, pace, threading.Lock()) as path:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(msgspec.json.encode(StallSteps()) + b"\n")
        assert await reply(reader) == HookReply("disturbed")
        assert not pace.running.is_set()

    assert pace.running.is_set()
    writer.close()
