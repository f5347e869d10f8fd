"""OTLP/HTTP intake for an aiohttp application.

Source: OTLP specification 1.x, sections "OTLP/HTTP Request", "OTLP/HTTP Response" and
"OTLP/HTTP Throttling".
"""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from agent.errors import MalformedError, TooLargeError
from agent.otlp.codec import JSON, PROTOBUF, Message, Signal, inflate, parse
from agent.otlp.status import Code, error_body, success_body

_READ_BYTES = 1 << 16
_PARSE_IN_THREAD_BYTES = 1 << 18  # about 5 ms of protobuf; more would hold up other clients
_BUSY_RETRY_S = 1.0
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Verdict:
    """What the application says of a request it was handed.

    `rejected` items are answered as a partial success; with `retry_after_s` nothing was taken and
    the sender is asked to come back (503).
    """

    rejected: int = 0
    reason: str = ""
    retry_after_s: float | None = None


@dataclass(frozen=True)
class Limits:
    """Bounds on what clients may make the receiver hold.

    `buffered_bytes` bounds all bodies being read together, so that slow clients cannot fill the
    memory; `concurrent_requests` counts only requests whose body is complete, so that slow clients
    cannot keep the others out.
    """

    body_bytes: int = 8 << 20
    inflated_bytes: int = 32 << 20
    buffered_bytes: int = 64 << 20
    concurrent_requests: int = 32
    read_timeout_s: float = 10.0


class _Refused(Exception):  # noqa: N818  it is an answer, not an error of ours
    """An answer other than 200, with what it says."""

    def __init__(self, status: int, code: Code, text: str, retry_after_s: float | None = None):
        super().__init__(text)
        self.status, self.code, self.text, self.retry_after_s = status, code, text, retry_after_s


class Receiver:
    """Answers POST /v1/{traces,metrics,logs} and hands each decoded request to `accept`."""

    def __init__(
        self,
        accept: Callable[[Signal, Message], Awaitable[Verdict]],
        limits: Limits | None = None,
    ) -> None:
        self._accept = accept
        self._limits = limits or Limits()
        self._buffered_bytes = 0
        self._processing = 0
        self.answers: Counter[int] = Counter()
        """How many requests were answered with each HTTP status."""

    def register(self, app: web.Application) -> None:
        """Add the three routes; run the application through `runner` to bound gzip bombs."""
        for signal in Signal:
            app.router.add_post(f"/v1/{signal}", self._handler(signal))

    def _handler(self, signal: Signal) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            try:
                response = await self._answer(signal, request)
            except _Refused as refused:
                response = _refusal(refused, request.content_type)
            self.answers[response.status] += 1
            return response

        return handle

    async def _answer(self, signal: Signal, request: web.Request) -> web.Response:
        content_type = request.content_type
        if content_type not in {PROTOBUF, JSON}:
            raise _Refused(415, Code.INVALID_ARGUMENT, f"send {PROTOBUF} or {JSON}")
        body = await self._read(request)
        if self._processing >= self._limits.concurrent_requests:
            raise _Refused(429, Code.RESOURCE_EXHAUSTED, "too many requests", _BUSY_RETRY_S)
        self._processing += 1
        try:
            message = await self._decode(signal, body, _encoding(request, body), content_type)
            verdict = await self._accept(signal, message)
        finally:
            self._processing -= 1
        if verdict.retry_after_s is not None:
            raise _Refused(503, Code.UNAVAILABLE, verdict.reason, verdict.retry_after_s)
        return web.Response(
            body=success_body(signal, verdict.rejected, verdict.reason, content_type),
            content_type=content_type,
        )

    async def _read(self, request: web.Request) -> bytes:
        if (request.content_length or 0) > self._limits.body_bytes:
            raise _too_large(self._limits.body_bytes)
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.read_timeout_s):
                async for chunk in request.content.iter_chunked(_READ_BYTES):
                    self._take(body, chunk)
        except TimeoutError:
            raise _Refused(408, Code.DEADLINE_EXCEEDED, "the body came too slowly") from None
        except web.RequestPayloadError as exc:
            raise _Refused(400, Code.INVALID_ARGUMENT, "the body is damaged") from exc
        finally:
            self._buffered_bytes -= len(body)
        return bytes(body)

    def _take(self, body: bytearray, chunk: bytes) -> None:
        if len(body) + len(chunk) > self._limits.body_bytes:
            raise _too_large(self._limits.body_bytes)
        if self._buffered_bytes + len(chunk) > self._limits.buffered_bytes:
            raise _Refused(503, Code.UNAVAILABLE, "too much is being sent at once", _BUSY_RETRY_S)
        self._buffered_bytes += len(chunk)
        body += chunk

    async def _decode(
        self, signal: Signal, body: bytes, encoding: str, content_type: str
    ) -> Message:
        limit = self._limits.inflated_bytes

        def decode() -> Message:
            return parse(signal, inflate(body, encoding, limit), content_type)

        try:
            if len(body) <= _PARSE_IN_THREAD_BYTES and encoding != "gzip":
                return decode()
            return await asyncio.to_thread(decode)
        except TooLargeError as exc:
            raise _Refused(413, Code.INVALID_ARGUMENT, str(exc)) from exc
        except MalformedError as exc:
            raise _Refused(400, Code.INVALID_ARGUMENT, str(exc)) from exc


def _encoding(request: web.Request, body: bytes) -> str:
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding == "gzip" and not body.startswith(_GZIP_MAGIC):
        return ""  # a server that does not run under `runner` has taken it off already
    return encoding


def _too_large(limit_bytes: int) -> _Refused:
    text = f"the body has more than {limit_bytes} bytes: send smaller batches"
    return _Refused(413, Code.INVALID_ARGUMENT, text)


def _refusal(refused: _Refused, content_type: str) -> web.Response:
    answer_type = PROTOBUF if content_type == PROTOBUF else JSON
    response = web.Response(
        status=refused.status,
        body=error_body(refused.code, refused.text, answer_type),
        content_type=answer_type,
    )
    if refused.retry_after_s is not None:
        response.headers["Retry-After"] = str(math.ceil(refused.retry_after_s))
    if refused.status in {408, 413, 503}:
        response.force_close()  # the rest of the body is unread
    return response


def runner(app: web.Application) -> web.AppRunner:
    """Return a runner that leaves content encodings to the receiver, which bounds them."""
    return web.AppRunner(
        app,
        access_log=None,
        auto_decompress=False,
        lingering_time=1.0,
        shutdown_timeout=1.0,
    )
