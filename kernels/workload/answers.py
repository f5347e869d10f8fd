"""Writing a completion out: whole, or token by token as server-sent events."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from aiohttp import web

from kernels.workload.clock import Clock
from kernels.workload.exchange import Exchange
from kernels.workload.generation import Stops
from kernels.workload.openai_answers import Answer, event
from kernels.workload.openai_api import ApiError, Asked
from kernels.workload.stops import StopFilter, without_stop
from kernels.workload.tokenizer import TextStream, decode

Tokens = AsyncIterator[tuple[int, str]]
"""Tokens with the finish reason beside the last one."""

SSE_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}


class ClientTooSlowError(ConnectionError):
    """The client has taken nothing for too long."""


@dataclass(frozen=True)
class Patience:
    """How much is written ahead of a slow client, in the kernel and out of it, and for how long it may take nothing."""

    buffer_bytes: int
    wait_s: float


async def replay(tokens: Sequence[int], limit: int, stops: Stops) -> Tokens:
    """Tokens of a known completion, as if the engine made them."""
    stopped = len(tokens) < limit or len(without_stop(tokens, stops)) < len(tokens)
    for position, token in enumerate(tokens, start=1):
        yield token, ("stop" if stopped else "length") if position == len(tokens) else ""


async def whole(exchange: Exchange, answer: Answer, stops: Stops, tokens: Tokens) -> web.Response:
    """Wait for the last token and answer in one piece."""
    async for token, finish in tokens:
        exchange.add(token, finish)
    text = decode(without_stop(exchange.tokens, stops))
    body = answer.whole(text, exchange.finish, exchange.usage)
    return web.Response(body=body, content_type="application/json")


class Stream:
    """One answer as server-sent events; the time in which the client holds it up is counted apart."""

    def __init__(
        self, request: web.Request, exchange: Exchange, clock: Clock, patience: Patience
    ) -> None:
        self._request = request
        self._exchange = exchange
        self._clock = clock
        self._patience = patience
        self._response = web.StreamResponse(headers=SSE_HEADERS)

    async def send(
        self, answer: Answer, asked: Asked, stops: Stops, tokens: Tokens
    ) -> web.StreamResponse:
        """Send each token as it comes. Raises ApiError while the status can still be chosen."""
        try:
            await self._send_tokens(answer, stops, tokens)
            await self._write(answer.end(self._exchange.usage if asked.wants_usage else None))
        except ApiError as error:
            if not self._response.prepared:
                raise
            self._exchange.fail(error.status, error.code)
            await self._write(event(error.body()))
        await self._response.write_eof()
        return self._response

    async def _send_tokens(self, answer: Answer, stops: Stops, tokens: Tokens) -> None:
        text, kept_out = TextStream(), StopFilter(stops)
        first = True
        async for token, finish in tokens:
            # Only now: until the first token a refusal can still have its own status.
            if not self._response.prepared:
                await self._prepare()
            self._exchange.add(token, finish)
            passed = kept_out.feed(token, last=bool(finish))
            piece = "".join(map(text.feed, passed)) + (text.close() if finish else "")
            if passed or finish:
                await self._write(answer.piece(piece, finish, first=first))
                first = False

    async def _prepare(self) -> None:
        transport = self._request.transport
        if transport is None:
            raise ConnectionResetError("the client has gone")
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._patience.buffer_bytes)
        transport.set_write_buffer_limits(high=self._patience.buffer_bytes)
        await self._response.prepare(self._request)

    async def _write(self, data: bytes) -> None:
        await self._response.write(data)
        transport = self._request.transport
        if transport is None or transport.get_write_buffer_size() <= self._patience.buffer_bytes:
            return
        blocked_ns = self._clock.now_ns()
        try:
            async with asyncio.timeout(self._patience.wait_s):
                await self._request.writer.drain()
        except TimeoutError as error:
            transport.abort()
            raise ClientTooSlowError("the client takes nothing") from error
        finally:
            self._exchange.blocked_ns += self._clock.now_ns() - blocked_ns
