"""POST /v1/completions: admission, tenant, prompt cache, engine, answer."""

import asyncio
import uuid
from dataclasses import dataclass

from aiohttp import web
from opentelemetry.trace import SpanKind, Tracer

from kernels.workload.answers import Tokens, replay, stream, whole
from kernels.workload.clock import Clock
from kernels.workload.engine import Engine, QueueFullError, StoppedError
from kernels.workload.exchange import Exchange
from kernels.workload.generation import Event, Generation
from kernels.workload.ids import ReservedIds
from kernels.workload.metrics import Metrics
from kernels.workload.openai_api import Answer, ApiError, CompletionRequest, parse
from kernels.workload.prompt_cache import PromptCache, cache_key
from kernels.workload.spans import RequestTrace
from kernels.workload.tenants import QUERY, Tenant, TenantDirectory
from kernels.workload.tokenizer import encode

RETRY_AFTER_S = 1
DATABASE = {
    "db.system.name": "sqlite",
    "db.operation.name": "SELECT",
    "db.collection.name": "tenants",
    "db.query.text": QUERY,
}
CLIENT_CLOSED_REQUEST = 499  # nginx's number for a client that went away; never sent


@dataclass(frozen=True)
class Service:
    """The parts that answer requests."""

    model: str
    context: int
    kv_tokens: int
    max_admitted: int
    engine: Engine
    tenants: TenantDirectory
    cache: PromptCache
    metrics: Metrics
    tracer: Tracer
    ids: ReservedIds
    clock: Clock


class Completions:
    """The handler; `in_flight` counts every request whose headers have been read."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._admitted = 0
        self.in_flight = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, leaving a span, a log line and counts whatever happens."""
        service = self._service
        trace = RequestTrace(service.tracer, service.ids, service.clock, request.headers)
        exchange = Exchange(trace)
        self.in_flight += 1
        try:
            asked = await self._read(request, exchange)
            return await self._admit(request, exchange, asked)
        except ApiError as error:
            exchange.fail(error.status, error.code)
            raise
        except (asyncio.CancelledError, ConnectionError):
            exchange.fail(CLIENT_CLOSED_REQUEST, "client_disconnected")
            raise
        except BaseException as error:
            exchange.fail(500, type(error).__name__)
            raise
        finally:
            self.in_flight -= 1
            self._finish(exchange)

    async def _admit(
        self, request: web.Request, exchange: Exchange, asked: CompletionRequest
    ) -> web.StreamResponse:
        """Hold a place while answering; bodies still on their way hold none. Raises ApiError 429."""
        if self._admitted >= self._service.max_admitted:
            raise _busy("too many requests at a time, try again later")
        self._admitted += 1
        try:
            return await self._answer(request, exchange, asked)
        finally:
            self._admitted -= 1

    async def _answer(
        self, request: web.Request, exchange: Exchange, asked: CompletionRequest
    ) -> web.StreamResponse:
        tenant = await self._tenant(exchange.trace, asked.user)
        limit = min(asked.max_tokens, tenant.max_tokens)
        key = cache_key(asked.prompt, limit, not asked.ignore_eos)
        known = self._look_in_cache(exchange.trace, key)
        if known is not None:
            tokens = replay(known, limit)
            exchange.first_token_ns = self._service.clock.now_ns()
        else:
            tokens = self._generate(exchange, asked, limit)
        answer = Answer(
            f"cmpl-{uuid.uuid4().hex}", exchange.trace.started_ns // 10**9, self._service.model
        )
        response: web.StreamResponse
        if asked.stream:
            response = await stream(request, exchange, answer, asked, tokens)
        else:
            response = await whole(exchange, answer, tokens)
        if exchange.status == 200:
            self._service.cache.put(key, exchange.tokens)
        return response

    async def _read(self, request: web.Request, exchange: Exchange) -> CompletionRequest:
        """Read and check the body. Raises ApiError 400, 404 or 413."""
        service = self._service
        try:
            asked = parse(await request.read())
        except web.HTTPRequestEntityTooLarge as error:
            raise ApiError(413, "the body is too large", "body_too_large") from error
        if asked.model not in ("", service.model):
            raise ApiError(404, f"the model {asked.model!r} does not exist", "model_not_found")
        exchange.prompt_tokens = len(asked.prompt.encode(errors="replace")) + 1
        wanted, most = (
            exchange.prompt_tokens + asked.max_tokens,
            min(service.context, service.kv_tokens),
        )
        if wanted > most:
            raise ApiError(
                400,
                f"the context holds {most} tokens: {exchange.prompt_tokens} of the prompt and "
                f"{asked.max_tokens} to generate are {wanted}",
                "context_length_exceeded",
            )
        exchange.trace.describe(
            {
                "gen_ai.operation.name": "text_completion",
                "gen_ai.provider.name": "tailcause",
                "gen_ai.request.model": service.model,
                "gen_ai.request.max_tokens": asked.max_tokens,
                "gen_ai.usage.input_tokens": exchange.prompt_tokens,
            }
        )
        return asked

    async def _tenant(self, trace: RequestTrace, name: str) -> Tenant:
        work = trace.work()
        try:
            return await self._service.tenants.find(name, work)
        finally:
            trace.add_work(work, "sql SELECT tenants", "sql wait", DATABASE)

    def _look_in_cache(self, trace: RequestTrace, key: bytes) -> tuple[int, ...] | None:
        span = trace.child("cache lookup", SpanKind.INTERNAL, {})
        known = self._service.cache.get(key)
        span.set_attribute("tailcause.cache.hit", known is not None)
        trace.close(span)
        self._service.metrics.cache_queries.inc()
        self._service.metrics.cache_hits.inc(known is not None)
        return known

    async def _generate(self, exchange: Exchange, asked: CompletionRequest, limit: int) -> Tokens:
        """Tokens as the engine makes them, each with its finish reason."""
        inbox: asyncio.Queue[Event] = asyncio.Queue()
        generation = Generation(
            encode(asked.prompt), limit, inbox.put_nowait, exchange.trace.span, not asked.ignore_eos
        )
        exchange.generation = generation
        try:
            self._service.engine.submit(generation)
        except QueueFullError as error:
            raise _busy(str(error)) from error
        except StoppedError as error:
            raise ApiError(503, str(error), "shutting_down", retry_after_s=RETRY_AFTER_S) from error
        finish = ""
        while not finish:
            event = await inbox.get()
            if event.failed:
                raise ApiError(500, "the engine failed", "engine_failed")
            exchange.first_token_ns = generation.first_token_ns
            finish = event.finish
            yield event.token, finish

    def _finish(self, exchange: Exchange) -> None:
        if exchange.generation is not None and exchange.status != 200:
            self._service.engine.cancel(exchange.generation)
        exchange.record(self._service.metrics)


def _busy(message: str) -> ApiError:
    return ApiError(429, message, "queue_full", retry_after_s=RETRY_AFTER_S)
