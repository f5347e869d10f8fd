"""OTLP/HTTP intake: the routes of an HTTP server.

Source: OTLP specification 1.x, sections "OTLP/HTTP Request", "OTLP/HTTP Response" and
"OTLP/HTTP Throttling".
"""

import asyncio
import math

from agent.http.message import BodyError, Handler, Request, Response, Routes
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

__all__ = ["Limits", "Receiver", "Verdict"]

TRANSPORT = "http"


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

    def routes(self) -> Routes:
        """Return the three paths, for a server."""
        return {f"/v1/{signal}": {"POST": self._handler(signal)} for signal in Signal}

    def _handler(self, signal: Signal) -> Handler:
        async def handle(request: Request) -> Response:
            try:
                response = await self._answer(signal, request)
            except Refusal as refusal:
                response = _refused(refusal, request.content_type)
            self.admission.answers[TRANSPORT, str(response.status)] += 1
            return response

        return handle

    async def _answer(self, signal: Signal, request: Request) -> Response:
        if not self._access.admits(request.headers.get("authorization", "")):
            raise Refusal(401, Code.UNAUTHENTICATED, "send Authorization: Bearer and a valid token")
        content_type = request.content_type
        if content_type not in {PROTOBUF, JSON}:
            raise Refusal(415, Code.INVALID_ARGUMENT, f"send {PROTOBUF} or {JSON}")
        raw = await self._read(request)
        encoding = request.headers.get("content-encoding", "").strip().lower()
        batch_id = request.headers.get(BATCH_HEADER.lower(), "")
        verdict = await self.admission.take(signal, Body(raw, encoding, content_type, batch_id))
        answer = success_body(signal, verdict.rejected, verdict.reason, content_type)
        return Response(200, answer, content_type)

    async def _read(self, request: Request) -> bytes:
        if (request.content_length or 0) > self._limits.body_bytes:
            raise too_large(self._limits.body_bytes)
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.read_timeout_s):
                async for chunk in request.body:
                    self._take(body, chunk)
        except TimeoutError:
            raise Refusal(408, Code.DEADLINE_EXCEEDED, "the body came too slowly") from None
        except BodyError as exc:
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


def _refused(refusal: Refusal, content_type: str) -> Response:
    answer_type = PROTOBUF if content_type == PROTOBUF else JSON
    body = error_body(refusal.code, refusal.text, answer_type)
    response = Response(refusal.status, body, answer_type)
    if refusal.retry_after_s is not None:
        response.headers["Retry-After"] = str(math.ceil(refusal.retry_after_s))
    if refusal.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    response.close = refusal.status in {401, 408, 413, 503}  # the rest of the body is unread
    return response
