"""The open loop: arrivals follow the plan and never wait for answers."""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from kernels.load.plan import Planned
from kernels.load.tally import Answer, Tally

LATE_S = 0.05
"""A request that leaves later than this after its time counts as late: the sender was too slow."""


class Sender(Protocol):
    """Whoever carries a request to the server."""

    async def send(self, planned: Planned) -> Answer:
        """Send one request and say how it ended."""


@dataclass(frozen=True)
class LoopConfig:
    """Limits of the loop."""

    max_in_flight: int = 512
    linger_s: float = 10.0
    """How long requests in flight may take to end once all are sent; then they have failed."""


class OpenLoop:
    """Sends a plan and counts what becomes of it."""

    def __init__(
        self, sender: Sender, config: LoopConfig, report: Callable[[Tally, float], None]
    ) -> None:
        self.tally = Tally()
        self._sender = sender
        self._config = config
        self._report = report
        self._in_flight: set[asyncio.Task[None]] = set()
        self._started = 0.0

    async def run(self, planned: Iterable[Planned], stop: asyncio.Event) -> None:
        """Send until the plan ends or `stop` is set, then wait for what is in flight."""
        self._started = time.perf_counter()
        ticker = asyncio.create_task(self._tick())
        try:
            for request in planned:
                if await self._stopped_before(request.at_s, stop):
                    break
                self._depart(request)
            await self._linger()
        finally:
            ticker.cancel()

    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._started

    async def _stopped_before(self, at_s: float, stop: asyncio.Event) -> bool:
        """Sleep until a departure; True when the run is stopped first."""
        delay = at_s - self.elapsed_s()
        if delay > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), delay)
        else:
            await asyncio.sleep(0)  # a sender that is behind still lets answers in
        return stop.is_set()

    def _depart(self, request: Planned) -> None:
        self.tally.sent += 1
        if self.elapsed_s() - request.at_s > LATE_S:
            self.tally.late += 1
        if len(self._in_flight) >= self._config.max_in_flight:
            self.tally.drop()
            return
        task = asyncio.create_task(self._carry(request))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def _carry(self, request: Planned) -> None:
        answer = await self._sender.send(request)
        self.tally.add(answer, self.elapsed_s())

    async def _linger(self) -> None:
        if not self._in_flight:
            return
        _, unanswered = await asyncio.wait(set(self._in_flight), timeout=self._config.linger_s)
        for task in unanswered:
            task.cancel()
            self.tally.abandon()
        await asyncio.gather(*unanswered, return_exceptions=True)

    async def _tick(self) -> None:
        """Report once a second of the run's own clock, so lines do not drift."""
        second = 0
        while True:
            second += 1
            await asyncio.sleep(max(0.0, second - self.elapsed_s()))
            self._report(self.tally, self.elapsed_s())
