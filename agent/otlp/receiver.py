"""OTLP/HTTP intake for an aiohttp application.

Source: OTLP specification 1.x, sections "OTLP/HTTP Request", "OTLP/HTTP Response" and
"OTLP/HTTP Throttling".
"""

import asyncio
import math
from collections.abc import Awaitable, Callable

from aiohttp import web

from agent.otlp.access import Access
from agent.otlp.admission import (
    BUSY_RETRY_S,
    Accept,
    Admission,
    Body,
    Limits,
    Refusal,
    Verdict,
    too_large,
)
from agent.otlp.batch import BATCH_HEADER
from agent.otlp.codec import JSON, PROTOBUF, Signal
from agent.otlp.status import Code, error_body, success_body

__all__ = ["Limits", "Receiver", "Verdict", "runner"]

TRANSPORT = "http"

_READ_BYTES = 1 << 16
_GZIP_MAGIC = b"\x1f\x8b"


class Receiver:
    """Answers POST /v1/{traces,metrics,logs} and hands each decoded request to `accept`.

    What it shares with a gRPC receiver of the same process is its `admission`.
    """

    def __init__(
        self, accept: Accept, limits: Limits | None = None, access: Access | None = None
    ) -> None:
        self.admission = Admission(accept, limits)
        self._limits = self.admission.limits
        self._access = access or Access()
        self._buffered_bytes = 0

    def register(self, app: web.Application) -> None:
        """Add the three routes; run the application through `runner` to bound gzip bombs."""
        for signal in Signal:
            app.router.add_post(f"/v1/{signal}", self._handler(signal))

    def _handler(self, signal: Signal) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            try:
                response = await self._answer(signal, request)
            except Refusal as refusal:
                response = _refused(refusal, request.content_type)
            self.admission.answers[TRANSPORT, str(response.status)] += 1
            return response

        return handle

    async def _answer(self, signal: Signal, request: web.Request) -> web.Response:
        if not self._access.admits(request.headers.get("Authorization", "")):
            raise Refusal(401, Code.UNAUTHENTICATED, "send Authorization: Bearer and a valid token")
        content_type = request.content_type
        if content_type not in {PROTOBUF, JSON}:
            raise Refusal(415, Code.INVALID_ARGUMENT, f"send {PROTOBUF} or {JSON}")
        raw = await self._read(request)
        batch_id = request.headers.get(BATCH_HEADER, "")
        body = Body(raw, _encoding(request, raw), content_type, batch_id)
        verdict = await self.admission.take(signal, body)
        return web.Response(
            body=success_body(signal, verdict.rejected, verdict.reason, content_type),
            content_type=content_type,
        )

    async def _read(self, request: web.Request) -> bytes:
        if (request.content_length or 0) > self._limits.body_bytes:
            raise too_large(self._limits.body_bytes)
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.read_timeout_s):
                async for chunk in request.content.iter_chunked(_READ_BYTES):
                    self._take(body, chunk)
        except TimeoutError:
            raise Refusal(408, Code.DEADLINE_EXCEEDED, "the body came too slowly") from None
        except web.RequestPayloadError as exc:
            raise Refusal(400, Code.INVALID_ARGUMENT, "the body is damaged") from exc
        finally:
            self._buffered_bytes -= len(body)
        return bytes(body)

    def _take(self, body: bytearray, chunk: bytes) -> None:
        if len(body) + len(chunk) > self._limits.body_bytes:
            raise too_large(self._limits.body_bytes)
        if self._buffered_bytes + len(chunk) > self._limits.buffered_bytes:
            raise Refusal(503, Code.UNAVAILABLE, "too much is being sent at once", BUSY_RETRY_S)
        self._buffered_bytes += len(chunk)
        body += chunk


def _encoding(request: web.Request, body: bytes) -> str:
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding == "gzip" and not body.startswith(_GZIP_MAGIC):
        return ""  # a server that does not run under `runner` has taken it off already
    return encoding


def _refused(refusal: Refusal, content_type: str) -> web.Response:
    answer_type = PROTOBUF if content_type == PROTOBUF else JSON
    response = web.Response(
        status=refusal.status,
        body=error_body(refusal.code, refusal.text, answer_type),
        content_type=answer_type,
    )
    if refusal.retry_after_s is not None:
        response.headers["Retry-After"] = str(math.ceil(refusal.retry_after_s))
    if refusal.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if refusal.status in {401, 408, 413, 503}:
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
