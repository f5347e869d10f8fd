"""The prompt cache in a real Redis: kept, shared, bounded in time, and done without while it is away."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from redis import Redis

from kernels.workload.breaker import OPEN, UnavailableError
from kernels.workload.redis_cache import LIFETIME_S, WAITING_WRITES, RedisCache
from tests.support.redis_server import RedisServer

KEY = b"k" * 16
PATIENT_S = 60.0
LIMIT_S = 1.0


@dataclass
class Cache:
    """A cache, and what it says of writes that it dropped."""

    cache: RedisCache
    dropped: "Counter[str]" = field(default_factory=Counter)

    async def find_in_the_end(self, key: bytes = KEY) -> tuple[int, ...]:
        """Look up until it is there: writes come behind, and a busy machine makes a deadline pass."""
        async with asyncio.timeout(PATIENT_S):
            while True:
                try:
                    if (known := await self.cache.find(key)) is not None:
                        return known
                except UnavailableError:
                    pass
                await asyncio.sleep(0.02)


@asynccontextmanager
async def cache(
    redis: RedisServer, model: str = "m", timeout_s: float = PATIENT_S
) -> AsyncIterator[Cache]:
    """Open a cache."""
    dropped: Counter[str] = Counter()
    opened = RedisCache(redis.url, model, timeout_s, lambda reason: dropped.update([reason]))
    await opened.open()
    try:
        yield Cache(opened, dropped)
    finally:
        await opened.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(PATIENT_S):
        while not condition():  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
def _empty(redis: RedisServer) -> None:
    """Nothing is left of the test before."""
    if redis.store.process is None:
        redis.start()
    with Redis.from_url(redis.url) as client:
        client.flushall()


async def test_what_one_replica_keeps_another_one_finds(redis: RedisServer) -> None:
    """The tokens come back as they were, for the same model alone, and not for ever."""
    tokens = (0, 1, 65, 255, 256, 257)
    async with cache(redis) as one, cache(redis) as two, cache(redis, "other") as other:
        assert await two.cache.find(KEY) is None
        one.cache.put(KEY, tokens)
        assert await two.find_in_the_end() == tokens
        assert await other.cache.find(KEY) is None
    with Redis.from_url(redis.url) as client:
        (name,) = client.keys("*")
        assert 0 < client.ttl(name) <= LIFETIME_S


@pytest.mark.parametrize("value", [b"", b"x", b"\xff\xff"])
async def test_a_value_that_is_not_ours_is_no_completion(redis: RedisServer, value: bytes) -> None:
    """Whatever somebody else has written there is refused."""
    with Redis.from_url(redis.url) as client:
        client.set(b"tailcause:completion:m:" + KEY, value)
    async with cache(redis) as one:
        with pytest.raises(UnavailableError, match="not one of ours"):
            await one.cache.find(KEY)


async def test_a_frozen_redis_costs_its_deadline_once(redis: RedisServer) -> None:
    """Then requests go without at no cost, writes are dropped and counted, and it is found again."""
    async with cache(redis, timeout_s=LIMIT_S) as one:
        one.cache.put(KEY, (1,))
        await one.find_in_the_end()
        with redis.store.frozen():
            began = time.monotonic()
            outcomes = await asyncio.gather(
                *(one.cache.find(KEY) for _ in range(20)), return_exceptions=True
            )
            assert {getattr(failure, "reason", failure) for failure in outcomes} == {"timeout"}
            assert time.monotonic() - began < PATIENT_S / 2
            for _ in range(1000):
                with pytest.raises(UnavailableError, match=OPEN):
                    await one.cache.find(KEY)
            one.cache.put(KEY, (2,))
            assert one.dropped == {OPEN: 1}
        assert await one.find_in_the_end() == (1,)


async def test_a_killed_redis_is_gone_without_and_found_again(redis: RedisServer) -> None:
    """It comes back empty, which is a miss and no failure."""
    async with cache(redis) as one:
        one.cache.put(KEY, (1,))
        await one.find_in_the_end()
        redis.store.kill()
        with pytest.raises(UnavailableError) as failure:
            await one.cache.find(KEY)
        assert failure.value.reason == "ConnectionError"
        await asyncio.to_thread(redis.start)
        await until(lambda: one.cache.available)
        assert await one.cache.find(KEY) is None
        one.cache.put(KEY, (3,))
        assert await one.find_in_the_end() == (3,)


async def test_a_redis_that_is_away_at_the_start_is_used_once_it_is_there(
    redis: RedisServer,
) -> None:
    """Starting does not depend on it."""
    redis.store.kill()
    async with cache(redis) as one:
        with pytest.raises(UnavailableError, match=OPEN):
            await one.cache.find(KEY)
        await asyncio.to_thread(redis.start)
        await until(lambda: one.cache.available)
        one.cache.put(KEY, (3,))
        assert await one.find_in_the_end() == (3,)


async def test_writes_that_wait_are_bounded(redis: RedisServer) -> None:
    """Beyond that they are dropped and counted: nobody waits for a cache."""
    async with cache(redis) as one:
        with redis.store.frozen():
            for number in range(WAITING_WRITES + 50):
                one.cache.put(number.to_bytes(16, "big"), (1,))
            assert one.dropped == {"queue_full": 50}
        assert await one.find_in_the_end((WAITING_WRITES - 1).to_bytes(16, "big")) == (1,)
