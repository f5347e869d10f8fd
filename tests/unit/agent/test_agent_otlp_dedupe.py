"""A batch that comes twice is taken once, over both protocols."""

import asyncio

import pytest

from agent.otlp.dedupe import RecentBatches


class Taker:
    """Counts how often it is asked, and fails as often as told."""

    def __init__(self, failures: int = 0) -> None:
        self.calls = 0
        self._failures = failures
        self.go = asyncio.Event()
        self.go.set()

    async def take(self) -> int:
        """Return the number of the call."""
        self.calls += 1
        await self.go.wait()
        if self.calls <= self._failures:
            raise ValueError("not now")
        return self.calls


async def test_second_time_gets_the_first_answer() -> None:
    """The answer is kept, not the work repeated."""
    recent, taker = RecentBatches[int](), Taker()
    assert [await recent.once("a", taker.take) for _ in range(3)] == [1, 1, 1]
    assert (taker.calls, recent.duplicates) == (1, 2)


async def test_at_the_same_time() -> None:
    """One that comes while the first is at work waits for it."""
    recent, taker = RecentBatches[int](), Taker()
    taker.go.clear()
    both = asyncio.gather(*(recent.once("a", taker.take) for _ in range(5)))
    await asyncio.sleep(0.01)
    taker.go.set()
    assert await both == [1] * 5
    assert taker.calls == 1


async def test_failures_are_forgotten() -> None:
    """What was not taken is taken the next time, also by one that waited."""
    recent, taker = RecentBatches[int](), Taker(failures=1)
    taker.go.clear()
    first = asyncio.create_task(recent.once("a", taker.take))
    second = asyncio.create_task(recent.once("a", taker.take))
    await asyncio.sleep(0.01)
    taker.go.set()
    with pytest.raises(ValueError, match="not now"):
        await first
    assert await second == 2
    assert recent.duplicates == 0


async def test_a_client_that_goes_away_does_not_block_the_next() -> None:
    """When the first is cancelled, the second does the work."""
    recent, taker = RecentBatches[int](), Taker()
    taker.go.clear()
    first = asyncio.create_task(recent.once("a", taker.take))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(recent.once("a", taker.take))
    await asyncio.sleep(0.01)
    first.cancel()
    taker.go.set()
    assert await second == 2


@pytest.mark.parametrize("batch_id", ["", "x" * 65])
async def test_no_id_is_taken_each_time(batch_id: str) -> None:
    """Who gives no id, or nonsense, is not held to it."""
    recent, taker = RecentBatches[int](), Taker()
    assert [await recent.once(batch_id, taker.take) for _ in range(2)] == [1, 2]


async def test_memory_is_bounded() -> None:
    """Only the last ids are remembered."""
    recent, taker = RecentBatches[int](remembered=3), Taker()
    for name in "abcd":
        await recent.once(name, taker.take)
    assert await recent.once("d", taker.take) == 4
    assert await recent.once("a", taker.take) == 5
    assert len(recent._answers) == 3
