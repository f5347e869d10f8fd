"""Signals are read when somebody asks, those that integrate at every interval, and none is forgotten."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import cast

from agent.collecting import Collecting
from agent.collectors.base import CollectorContext
from agent.collectors.registry import COLLECTORS, Entry
from agent.collectors.watch import Watch
from agent.config import Config
from agent.pipeline import Board, Watched
from agent.telemetry.model import Sample

Until = Callable[[Callable[[], object]], Awaitable[None]]
STEADY, LAZY = "steady", "lazy"


@dataclass
class Counting:
    """Stands for a watch; counts its calls, whose number is the value, and hangs when told to."""

    calls: int = 0
    hangs: bool = False
    deadline_s: float = 5.0

    async def collect(self) -> list[Sample]:
        """Return the number of this call."""
        self.calls += 1
        if self.hangs:
            await asyncio.sleep(60)
        return [Sample("system.memory.limit", self.calls, 1)]

    async def close(self) -> None:
        """Hold nothing."""


def entry(name: str, beats: int) -> Entry:
    """Return an entry of the registry under another name."""
    return replace(COLLECTORS[0], name=name, beats=beats)


@dataclass
class Scene:
    """Two signals at work: one that is read at each interval, one that is read when asked for."""

    collecting: Collecting
    board: Board
    steady: Counting
    lazy: Counting

    def values(self) -> list[float]:
        """Return what would be exported."""
        return [sample.value for sample in self.board.snapshot()]


@contextlib.asynccontextmanager
async def scene(interval_s: float, beats: int, deadline_s: float = 5.0) -> AsyncIterator[Scene]:
    """Run both."""
    board, config = Board(), Config(interval=interval_s, deadline=deadline_s, disable=())
    made = Scene(Collecting(CollectorContext(), board, config), board, Counting(), Counting())
    made.collecting._watched = {
        STEADY: Watched(entry(STEADY, 1), cast("Watch", made.steady)),
        LAZY: Watched(entry(LAZY, beats), cast("Watch", made.lazy)),
    }
    async with asyncio.TaskGroup() as group:
        made.collecting.start(group)
        yield made
        await made.collecting.stop()


async def test_what_integrates_is_read_at_each_interval_and_the_rest_when_asked(
    until: Until,
) -> None:
    """Both are read at the start; from then on one of them by itself, the other by whoever exports."""
    async with scene(0.05, beats=1000) as running:
        await until(lambda: running.steady.calls >= 5)
        assert running.lazy.calls == 1
        await running.collecting.refresh()
        assert running.lazy.calls == 2
        assert 2 in running.values()


async def test_what_was_read_just_now_is_not_read_again(until: Until) -> None:
    """Two that ask at once share a reading; one that asks within half an interval gets the last."""
    async with scene(1.0, beats=1000) as running:
        await until(lambda: running.lazy.calls)
        await asyncio.gather(*(running.collecting.refresh() for _ in range(5)))
        assert running.lazy.calls == 1
        await asyncio.sleep(0.5)
        await asyncio.gather(*(running.collecting.refresh() for _ in range(5)))
        assert running.lazy.calls == 2


async def test_nobody_asks_and_still_it_is_read_now_and_then(until: Until) -> None:
    """So that its state is known, and a source that is gone is noticed."""
    async with scene(0.02, beats=5) as running:
        await until(lambda: running.lazy.calls >= 4)
        assert running.steady.calls >= 3 * running.lazy.calls
        assert running.collecting.patience_s(LAZY) > running.collecting.patience_s(STEADY)


async def test_one_that_hangs_is_not_waited_for_for_ever(until: Until) -> None:
    """An export goes without it after the deadline, and sooner for who is in a hurry."""
    async with scene(0.02, beats=1000, deadline_s=0.2) as running:
        await until(lambda: running.lazy.calls)
        running.lazy.hangs = True
        await asyncio.sleep(0.02)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await running.collecting.refresh()
        assert 0.15 <= loop.time() - began_s < 2
        began_s = loop.time()
        await running.collecting.refresh(0.01)
        assert loop.time() - began_s < 0.15
        assert running.lazy.calls == 2


async def test_nothing_is_read_after_the_end() -> None:
    """A scrape while the agent drains opens no driver again."""
    async with scene(0.001, beats=1000) as running:
        await running.collecting.stop()
        calls = running.lazy.calls
        await asyncio.sleep(0.01)
        await running.collecting.refresh()
        assert running.lazy.calls == calls
