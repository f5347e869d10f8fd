"""OTLP out: never blocks its producer, counts every loss, retries without rushing."""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.otlp.backlog import Backlog
from agent.otlp.batch import Batch
from agent.otlp.codec import Signal
from agent.otlp.outbox import Outbox
from agent.otlp.retry import Retry, backoff_s
from agent.otlp.spool import Spool, SpoolSettings
from agent.otlp.transport import Delivered, Refused, Target, Transport

_log = logging.getLogger(__name__)

_FLUSH_RETRY_S = 0.1
_GRPC_SCHEMES = ("grpc://", "grpcs://")


@dataclass(frozen=True)
class SenderLimits:
    """Bounds of the queue and of the patience with a back end that is away."""

    queued_items: int = 100_000
    queued_bytes: int = 32 << 20
    request_timeout_s: float = 10.0
    backoff_max_s: float = 30.0
    retry_after_max_s: float = 300.0
    flush_s: float = 2.0
    spool_after_s: float = 0.5
    """How long the queue may be without an end before what waits in memory goes to the spool."""


@dataclass
class SenderStats:
    """Counters of what became of the items."""

    sent: int = 0
    retries: int = 0
    losses: Counter[tuple[Signal, str]] = field(default_factory=Counter)
    """Items lost, by signal and reason: overflow, too_large, refused, rejected, shutdown, spool_full, spool_damaged."""

    @property
    def dropped(self) -> Counter[str]:
        """Return the losses by reason."""
        sums: Counter[str] = Counter()
        for (_, reason), items in self.losses.items():
            sums[reason] += items
        return sums


class Sender:
    """Sends OTLP requests to a back end such as http://127.0.0.1:4318, oldest first.

    The owner runs `run` as a task and ends it with `close`.
    """

    def __init__(
        self,
        target: Target | str,
        limits: SenderLimits | None = None,
        *,
        spool: SpoolSettings | None = None,
        rng: random.Random | None = None,
        unix_time_s: Callable[[], float] = time.time,
    ) -> None:
        """Raise `CannotStartError` for certificates that cannot be used."""
        self._target = target if isinstance(target, Target) else Target(target)
        self._limits = limits or SenderLimits()
        self._rng = rng or random.Random()  # noqa: S311  it spreads retries, it guards nothing
        self._transport = _transport(self._target, self._limits, unix_time_s)
        self.stats = SenderStats()
        self.spool = Spool(spool, self._lose_items) if spool is not None else None
        backlog = Backlog(self._limits.queued_items, self._limits.queued_bytes)
        self._outbox = Outbox(backlog, self.spool, self._lose)
        self._arrived = asyncio.Event()
        self._closing = asyncio.Event()
        self._flush: asyncio.Timeout | None = None
        self._heir: Sender | None = None
        self._reachable = True
        self._busy_since_s = 0.0

    @property
    def queued_items(self) -> int:
        """Return how many items wait to be sent."""
        return self._outbox.items

    def offer(self, signal: Signal, body: bytes, items: int) -> bool:
        """Queue an encoded request, if need be in place of the oldest; False if it was refused."""
        batch = Batch(signal, body, items)
        if self._closing.is_set():
            self._lose(batch, "shutdown")
            return False
        taken = self._outbox.put(batch)
        self._arrived.set()
        return taken

    def adopt(self, batch: Batch) -> None:
        """Queue what another sender could not send any more."""
        self._outbox.put(batch)
        self._arrived.set()

    def _lose(self, batch: Batch, reason: str) -> None:
        self._lose_items(batch.signal, batch.items, reason)

    def _lose_items(self, signal: Signal, items: int, reason: str) -> None:
        self.stats.losses[signal, reason] += items

    async def run(self) -> None:
        """Send until `close`; what cannot be sent by its deadline is spooled, or counted as lost."""
        flush = asyncio.timeout(self._limits.flush_s if self._closing.is_set() else None)
        self._busy_since_s = time.monotonic()
        if self.spool is not None:
            self.spool.recover()
        try:
            async with flush:
                self._flush = flush
                await self._send_all()
        except TimeoutError:
            _log.warning(
                "event=otlp_flush_incomplete endpoint=%s items=%d",
                *(self._target.endpoint, self.queued_items),
            )
        finally:
            self._flush = None
            self._leave(self._outbox.close())
            await self._transport.close()

    def _leave(self, batches: list[Batch]) -> None:
        for batch in batches:
            if self._heir is not None:
                self._heir.adopt(batch)
            else:
                self._lose(batch, "shutdown")

    async def close(self, heir: "Sender | None" = None) -> None:
        """Take nothing more and give `run` at most `flush_s` to send what is queued.

        What is left then, and not spooled, goes to the heir; without one it is lost.
        """
        if self._closing.is_set():
            return
        self._heir = heir
        self._closing.set()
        self._arrived.set()
        if self._flush is not None:
            now_s = asyncio.get_running_loop().time()
            self._flush.reschedule(now_s + self._limits.flush_s)

    async def _send_all(self) -> None:
        while True:
            batch = self._outbox.take()
            if batch is not None:
                await self._deliver(batch)
            elif self._closing.is_set():
                return
            else:
                self._arrived.clear()
                await self._arrived.wait()
                self._busy_since_s = time.monotonic()

    async def _deliver(self, batch: Batch) -> None:
        """Try until the batch is delivered, refused for good, or pushed out by newer ones."""
        attempt = 0
        while isinstance(outcome := await self._attempt(batch), Retry):
            self.stats.retries += 1
            self._say_away(outcome.why)
            self._outbox.spill()
            await self._pause(backoff_s(attempt, outcome, self._limits.backoff_max_s, self._rng))
            attempt += 1
            if not self._outbox.keep(batch):
                return
        self._say_back()
        self._outbox.done(batch)
        self._count(batch, outcome)

    async def _attempt(self, batch: Batch) -> Delivered | Refused | Retry:
        busy_s = time.monotonic() - self._busy_since_s
        left_s = max(0.0, self._limits.spool_after_s - busy_s)
        slow = asyncio.get_running_loop().call_later(left_s, self._outbox.spill)
        try:
            return await self._transport.attempt(batch)
        finally:
            slow.cancel()

    def _count(self, batch: Batch, outcome: Delivered | Refused) -> None:
        if isinstance(outcome, Refused):
            self._lose(batch, "refused")
            _log.warning(
                "event=otlp_refused endpoint=%s signal=%s why=%r items=%d",
                *(self._target.endpoint, batch.signal, outcome.why, batch.items),
            )
            return
        if outcome.rejected:
            self._lose_items(batch.signal, outcome.rejected, "rejected")
        self.stats.sent += batch.items - outcome.rejected

    async def _pause(self, seconds: float) -> None:
        """Wait, but only a short breath once `close` has begun."""
        if self._closing.is_set():
            await asyncio.sleep(min(seconds, _FLUSH_RETRY_S))
            return
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            pass

    def _say_away(self, why: str) -> None:
        if self._reachable:
            self._reachable = False
            _log.warning("event=otlp_backend_away endpoint=%s why=%r", self._target.endpoint, why)

    def _say_back(self) -> None:
        if not self._reachable:
            self._reachable = True
            _log.info("event=otlp_backend_back endpoint=%s", self._target.endpoint)


def _transport(target: Target, limits: SenderLimits, unix_time_s: Callable[[], float]) -> Transport:
    """Return the way to a back end; what it needs is imported for it alone."""
    if target.endpoint.startswith(_GRPC_SCHEMES):
        from agent.otlp.grpc_sender import GrpcTransport  # noqa: PLC0415

        return GrpcTransport(target, limits.request_timeout_s, limits.retry_after_max_s)
    from agent.otlp.http_sender import HttpTransport  # noqa: PLC0415

    return HttpTransport(target, limits.request_timeout_s, limits.retry_after_max_s, unix_time_s)
