"""Writing a completion out: whole, or token by token as server-sent events."""

from collections.abc import AsyncIterator, Sequence

from aiohttp import web

from kernels.workload.exchange import Exchange
from kernels.workload.openai_api import (
    Answer,
    ApiError,
    CompletionRequest,
    chunk,
    completion,
    event,
    last_chunks,
)
from kernels.workload.tokenizer import TextStream, decode

Tokens = AsyncIterator[tuple[int, str]]
"""Tokens with the finish reason beside the last one."""

SSE_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}


async def replay(tokens: Sequence[int], limit: int) -> Tokens:
    """Tokens of a known completion, as if the engine made them."""
    finish = "length" if len(tokens) >= limit else "stop"
    for position, token in enumerate(tokens, start=1):
        yield token, finish if position == len(tokens) else ""


async def whole(exchange: Exchange, answer: Answer, tokens: Tokens) -> web.Response:
    """Wait for the last token and answer in one piece."""
    finish = ""
    async for token, finish in tokens:  # noqa: B007 - the last one counts
        exchange.tokens.append(token)
    body = completion(answer, decode(exchange.tokens), finish, exchange.usage)
    return web.Response(body=body, content_type="application/json")


async def stream(
    request: web.Request,
    exchange: Exchange,
    answer: Answer,
    asked: CompletionRequest,
    tokens: Tokens,
) -> web.StreamResponse:
    """Send each token as it comes. Raises ApiError while the status can still be chosen."""
    response = web.StreamResponse(headers=SSE_HEADERS)
    try:
        await _send_tokens(request, response, exchange, answer, tokens)
        wants_usage = asked.stream_options is not None and asked.stream_options.include_usage
        await response.write(last_chunks(answer, exchange.usage if wants_usage else None))
    except ApiError as error:
        if not response.prepared:
            raise
        exchange.fail(error.status, error.code)
        await response.write(event(error.body()))
    await response.write_eof()
    return response


async def _send_tokens(
    request: web.Request,
    response: web.StreamResponse,
    exchange: Exchange,
    answer: Answer,
    tokens: Tokens,
) -> None:
    text = TextStream()
    async for token, finish in tokens:
        # Only now: until the first token a refusal can still have its own status.
        if not response.prepared:
            await response.prepare(request)
        exchange.tokens.append(token)
        piece = text.feed(token) + (text.close() if finish else "")
        await response.write(chunk(answer, piece, finish))
