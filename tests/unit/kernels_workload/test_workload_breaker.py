"""The breaker: one failure opens it, a probe closes it, and requests pay for neither."""

import asyncio

import pytest

from kernels.workload.breaker import OPEN, Breaker, UnavailableError


class Store:
    """A store that fails as many probes as it is told to; waits are noted and cost nothing."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.waits_s: list[float] = []

    async def probe(self) -> None:
        """Fail until it is over."""
        self.failures -= 1
        if self.failures >= 0:
            raise UnavailableError("timeout")

    async def sleep(self, seconds: float) -> None:
        """Note a wait."""
        self.waits_s.append(seconds)
        await asyncio.sleep(0)


async def test_waits_double_up_to_a_limit_and_the_breaker_closes() -> None:
    """Every probe waits twice as long as the last, at most 8 s."""
    store = Store(failures=7)
    breaker = Breaker("redis", store.probe, store.sleep)
    breaker.check()
    breaker.trip(UnavailableError("timeout"))
    breaker.trip(UnavailableError("timeout"))
    with pytest.raises(UnavailableError, match=OPEN):
        breaker.check()
    async with asyncio.timeout(30):
        while not breaker.closed:  # noqa: ASYNC110 - the breaker's own task decides
            await asyncio.sleep(0)
    breaker.check()
    assert store.waits_s == [0.25, 0.5, 1, 2, 4, 8, 8, 8]


async def test_the_next_outage_begins_with_short_waits() -> None:
    """What was learned of one outage says nothing of the next."""
    store = Store(failures=2)
    breaker = Breaker("redis", store.probe, store.sleep)
    for failures in (2, 0):
        store.failures = failures
        breaker.trip(UnavailableError("timeout"))
        async with asyncio.timeout(30):
            while not breaker.closed:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0)
    assert store.waits_s == [0.25, 0.5, 1, 0.25]


async def test_stopping_ends_the_probes() -> None:
    """A server that ends does not wait for a store to come back."""
    breaker = Breaker("redis", Store(0).probe)
    breaker.trip(UnavailableError("timeout"))
    breaker.stop()
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1
