"""What both receivers do with a body once they have it: bound it, decode it, hand it over, count the answer.

Source: OTLP specification 1.x, sections "OTLP/gRPC Response", "OTLP/HTTP Response" and "Throttling".
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agent.errors import MalformedError, TooLargeError
from agent.otlp import ids
from agent.otlp.codec import Message, Signal, inflate, parse
from agent.otlp.dedupe import RecentBatches
from agent.otlp.status import Code

_log = logging.getLogger(__name__)

BUSY_RETRY_S = 1.0
_PARSE_IN_THREAD_BYTES = 1 << 18  # about 5 ms of protobuf; more would hold up other clients


@dataclass(frozen=True)
class Verdict:
    """What the application says of a request it was handed.

    `rejected` items are answered as a partial success; with `retry_after_s` nothing was taken and
    the sender is asked to come back (503, UNAVAILABLE).
    """

    rejected: int = 0
    reason: str = ""
    retry_after_s: float | None = None


Accept = Callable[[Signal, Message], Awaitable[Verdict]]


@dataclass(frozen=True)
class Limits:
    """Bounds on what clients may make the receivers hold.

    `buffered_bytes` bounds all bodies being read together, so that slow clients cannot fill the
    memory; `concurrent_requests` counts only requests whose body is complete, so that slow clients
    cannot keep the others out. `message_bytes` is the bound of one gRPC message as it travels; the
    specification recommends 4 MiB to clients and servers.
    """

    body_bytes: int = 8 << 20
    message_bytes: int = 4 << 20
    inflated_bytes: int = 32 << 20
    buffered_bytes: int = 64 << 20
    concurrent_requests: int = 32
    read_timeout_s: float = 10.0


class Refusal(Exception):  # noqa: N818  it is an answer, not an error of ours
    """An answer that takes nothing: a status of either protocol, and what to do."""

    def __init__(
        self, status: int, code: Code, text: str, retry_after_s: float | None = None
    ) -> None:
        super().__init__(text)
        self.status, self.code, self.text, self.retry_after_s = status, code, text, retry_after_s


@dataclass(frozen=True)
class Body:
    """A complete body as it came."""

    raw: bytes
    encoding: str
    content_type: str
    batch_id: str = ""
    """By which a sender of ours says that it sends the same again."""


class Admission:
    """Decodes bodies and hands the requests in them to `accept`; shared by the receivers of a process."""

    def __init__(self, accept: Accept, limits: Limits | None = None) -> None:
        self._accept = accept
        self._processing = 0
        self._recent: RecentBatches[Verdict] = RecentBatches()
        self.limits = limits or Limits()
        self.answers: Counter[tuple[str, str]] = Counter()
        """How many requests were answered, by transport (`http`, `grpc`) and code."""
        self.rejected: Counter[str] = Counter()
        """Spans and links of spans that were left out, by reason."""

    @property
    def duplicates(self) -> int:
        """Return how many requests came twice and were taken once."""
        return self._recent.duplicates

    @property
    def processing(self) -> int:
        """Return how many complete requests are at work."""
        return self._processing

    async def take(self, signal: Signal, body: Body) -> Verdict:
        """Return what became of a request; raises `Refusal` when nothing of it was taken."""
        if self._processing >= self.limits.concurrent_requests:
            raise Refusal(429, Code.RESOURCE_EXHAUSTED, "too many requests", BUSY_RETRY_S)
        self._processing += 1
        try:
            return await self._recent.once(body.batch_id, lambda: self._take(signal, body))
        finally:
            self._processing -= 1

    async def _take(self, signal: Signal, body: Body) -> Verdict:
        try:
            message = await self._decode(signal, body)
            bad = ids.drop_bad_spans(message)
            verdict = await self._accept(signal, message)
        except Refusal:
            raise
        except (
            Exception
        ) as exc:  # boundary: a fault of ours is answered and counted, and costs nobody else
            _log.exception("event=otlp_request_failed signal=%s", signal)
            raise Refusal(500, Code.INTERNAL, "the request could not be processed") from exc
        if verdict.retry_after_s is not None:
            raise Refusal(503, Code.UNAVAILABLE, verdict.reason, verdict.retry_after_s)
        self.rejected.update(bad.counts)
        return _merged(verdict, bad)

    async def _decode(self, signal: Signal, body: Body) -> Message:
        limit = self.limits.inflated_bytes

        def decode() -> Message:
            return parse(signal, inflate(body.raw, body.encoding, limit), body.content_type)

        try:
            if len(body.raw) <= _PARSE_IN_THREAD_BYTES and body.encoding != "gzip":
                return decode()
            return await asyncio.to_thread(decode)
        except TooLargeError as exc:
            raise Refusal(413, Code.RESOURCE_EXHAUSTED, str(exc)) from exc
        except MalformedError as exc:
            raise Refusal(400, Code.INVALID_ARGUMENT, str(exc)) from exc


def _merged(verdict: Verdict, bad: ids.BadIds) -> Verdict:
    reasons = [reason for reason in (bad.reason, verdict.reason) if reason]
    return Verdict(verdict.rejected + bad.spans, "; ".join(reasons))


def too_large(limit_bytes: int) -> Refusal:
    """Return the refusal of a body past a limit; it has no RetryInfo, so a client gives it up."""
    text = f"the body has more than {limit_bytes} bytes: send smaller batches"
    return Refusal(413, Code.RESOURCE_EXHAUSTED, text)
