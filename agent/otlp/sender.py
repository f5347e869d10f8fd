"""OTLP/HTTP sender: never blocks its producer, counts every loss, retries without rushing."""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
from google.protobuf import message as protobuf

from agent.otlp.backlog import Backlog, Batch
from agent.otlp.codec import PROTOBUF, Signal
from agent.otlp.retry import RETRYABLE_STATUSES, Retry, backoff_s, retry_after_s
from agent.otlp.status import empty_response, rejected_field

_log = logging.getLogger(__name__)

_RESPONSE_BYTES = 1 << 16
_FLUSH_RETRY_S = 0.1


@dataclass(frozen=True)
class SenderLimits:
    """Bounds of the queue and of the patience with a back end that is away."""

    queued_items: int = 100_000
    queued_bytes: int = 32 << 20
    request_timeout_s: float = 10.0
    backoff_max_s: float = 30.0
    retry_after_max_s: float = 300.0
    flush_s: float = 2.0


@dataclass
class SenderStats:
    """Counters of what became of the items."""

    sent: int = 0
    retries: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Items lost, by reason: overflow, too_large, refused, rejected, shutdown."""


class Sender:
    """Sends OTLP requests to `endpoint` (such as http://127.0.0.1:4318), oldest first.

    The owner runs `run` as a task and ends it with `close`.
    """

    def __init__(
        self,
        endpoint: str,
        limits: SenderLimits | None = None,
        *,
        rng: random.Random | None = None,
        unix_time_s: Callable[[], float] = time.time,
    ) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._limits = limits or SenderLimits()
        self._rng = rng or random.Random()  # noqa: S311  it spreads retries, it guards nothing
        self._unix_time_s = unix_time_s
        self._backlog = Backlog(self._limits.queued_items, self._limits.queued_bytes)
        self._arrived = asyncio.Event()
        self._closing = asyncio.Event()
        self._flush: asyncio.Timeout | None = None
        self._reachable = True
        self.stats = SenderStats()

    @property
    def queued_items(self) -> int:
        """Return how many items wait to be sent."""
        return self._backlog.items

    def offer(self, signal: Signal, body: bytes, items: int) -> bool:
        """Queue an encoded request; make room by dropping the oldest; False if it was refused."""
        batch = Batch(signal, body, items)
        if self._closing.is_set():
            self._lose(batch, "shutdown")
            return False
        if not self._backlog.could_ever_hold(batch):
            self._lose(batch, "too_large")
            return False
        while not self._backlog.has_room_for(batch):
            self._lose(self._backlog.pop(), "overflow")
        self._backlog.push(batch)
        self._arrived.set()
        return True

    def _lose(self, batch: Batch, reason: str) -> None:
        self.stats.dropped[reason] += batch.items

    async def run(self) -> None:
        """Send until `close`; what cannot be sent by its deadline is counted as lost."""
        timeout = aiohttp.ClientTimeout(total=self._limits.request_timeout_s)
        flush = asyncio.timeout(self._limits.flush_s if self._closing.is_set() else None)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session, flush:
                self._flush = flush
                await self._send_all(session)
        except TimeoutError:
            _log.warning("event=otlp_flush_incomplete endpoint=%s", self._endpoint)
        finally:
            self._flush = None
            while self._backlog:
                self._lose(self._backlog.pop(), "shutdown")

    async def close(self) -> None:
        """Take nothing more and give `run` at most `flush_s` to send what is queued."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._arrived.set()
        if self._flush is not None:
            now_s = asyncio.get_running_loop().time()
            self._flush.reschedule(now_s + self._limits.flush_s)

    async def _send_all(self, session: aiohttp.ClientSession) -> None:
        while self._backlog or not self._closing.is_set():
            if not self._backlog:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            batch = self._backlog.pop()
            try:
                await self._deliver(session, batch)
            except asyncio.CancelledError:
                self._lose(batch, "shutdown")
                raise

    async def _deliver(self, session: aiohttp.ClientSession, batch: Batch) -> None:
        """Try until the batch is delivered, refused for good, or pushed out by newer ones."""
        attempt = 0
        while (retry := await self._attempt(session, batch)) is not None:
            self.stats.retries += 1
            self._say_away(retry.why)
            await self._pause(backoff_s(attempt, retry, self._limits.backoff_max_s, self._rng))
            attempt += 1
            if not self._backlog.has_room_for(batch):
                self._lose(batch, "overflow")
                return

    async def _attempt(self, session: aiohttp.ClientSession, batch: Batch) -> Retry | None:
        try:
            async with session.post(
                f"{self._endpoint}/v1/{batch.signal}",
                data=batch.body,
                headers={"Content-Type": PROTOBUF},
                allow_redirects=False,
            ) as response:
                answer = await response.content.read(_RESPONSE_BYTES)
        except (aiohttp.ClientError, OSError, TimeoutError) as exc:
            return Retry(str(exc) or type(exc).__name__)
        if response.status in RETRYABLE_STATUSES:
            header = response.headers.get("Retry-After")
            max_s = self._limits.retry_after_max_s
            after_s = retry_after_s(header, self._unix_time_s(), max_s)
            return Retry(f"HTTP {response.status}", after_s)
        self._settle(batch, response.status, answer)
        return None

    def _settle(self, batch: Batch, status: int, answer: bytes) -> None:
        self._say_back()
        if status != 200:
            self._lose(batch, "refused")
            _log.warning(
                "event=otlp_refused endpoint=%s signal=%s status=%d items=%d",
                *(self._endpoint, batch.signal, status, batch.items),
            )
            return
        rejected = min(_rejected(batch.signal, answer), batch.items)
        if rejected:
            self.stats.dropped["rejected"] += rejected
        self.stats.sent += batch.items - rejected

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
            _log.warning("event=otlp_backend_away endpoint=%s why=%r", self._endpoint, why)

    def _say_back(self) -> None:
        if not self._reachable:
            self._reachable = True
            _log.info("event=otlp_backend_back endpoint=%s", self._endpoint)


def _rejected(signal: Signal, answer: bytes) -> int:
    """Return how many items a 200 response rejected; an unreadable answer rejects none."""
    response = empty_response(signal)
    try:
        response.ParseFromString(answer)
    except protobuf.DecodeError:
        return 0
    rejected: int = getattr(response.partial_success, rejected_field(signal))
    return max(0, rejected)
