"""POST /v1/completions and /v1/chat/completions: admission, tenant, prompt cache, engine, answer."""

import asyncio
import uuid
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler
from opentelemetry.trace import Tracer

from kernels.workload.adapters import Adapters
from kernels.workload.answers import ClientTooSlowError, Patience, Stream, Tokens, replay, whole
from kernels.workload.bodies import RETRY_AFTER_S, Bodies
from kernels.workload.clock import Clock
from kernels.workload.engine import Engine, QueueFullError, StoppedError
from kernels.workload.exchange import Exchange
from kernels.workload.generation import Event, Generation, Stops, Task
from kernels.workload.ids import ReservedIds
from kernels.workload.lookups import Lookups
from kernels.workload.metrics import Metrics
from kernels.workload.openai_answers import Answer, Api
from kernels.workload.openai_api import ApiError, Asked
from kernels.workload.places import Place, Places
from kernels.workload.prompt_cache import cache_key
from kernels.workload.spans import RequestTrace
from kernels.workload.tokenizer import encode, encode_stops

CLIENT_CLOSED_REQUEST = 499  # nginx's number for a client that went away; never sent


@dataclass(frozen=True)
class Service:
    """The parts that answer requests."""

    model: str
    context: int
    max_in_flight: int
    patience: Patience
    places: Places
    bodies: Bodies
    engine: Engine
    lookups: Lookups
    adapters: Adapters | None
    metrics: Metrics
    tracer: Tracer
    ids: ReservedIds
    clock: Clock


@dataclass(frozen=True)
class _Job:
    """One request on its way: how it came in, what it asks for, its record and its place."""

    request: web.Request
    api: Api
    exchange: Exchange
    asked: Asked
    place: Place
    stops: Stops


class Completions:
    """The handlers; `in_flight` counts every request whose headers have been read."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.in_flight = 0

    def handler(self, api: Api) -> Handler:
        """Return the handler of one of the APIs."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._handle(api, request)

        return handle

    async def _handle(self, api: Api, request: web.Request) -> web.StreamResponse:
        """Answer one request, leaving a span, a log line and counts whatever happens."""
        service = self._service
        trace = RequestTrace(service.tracer, service.ids, service.clock, api.route, request.headers)
        exchange = Exchange(trace)
        self.in_flight += 1
        try:
            asked = await self._read(api, request, exchange)
            return await self._admit(api, request, exchange, asked)
        except ApiError as error:
            exchange.fail(error.status, error.code)
            raise
        except ClientTooSlowError:
            exchange.fail(CLIENT_CLOSED_REQUEST, "client_too_slow")
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
        self, api: Api, request: web.Request, exchange: Exchange, asked: Asked
    ) -> web.StreamResponse:
        """Hold a place while answering; bodies still on their way hold none. Raises ApiError 429."""
        place = self._service.places.take()
        if place is None:
            raise _busy("too many requests at a time, try again later")
        try:
            stops = encode_stops(asked.stops)
            return await self._answer(_Job(request, api, exchange, asked, place, stops))
        finally:
            place.give_back()

    async def _answer(self, job: _Job) -> web.StreamResponse:
        service, exchange, asked = self._service, job.exchange, job.asked
        tenant = await service.lookups.tenant(exchange.trace, asked.sampling.user)
        room = self._most_tokens() - exchange.prompt_tokens
        limit = min(asked.max_tokens or room, tenant.max_tokens)
        key = cache_key(asked.prompt, limit, not asked.sampling.ignore_eos, job.stops)
        known = await service.lookups.completion(exchange.trace, key)
        if known is not None:
            tokens = replay(known, limit, job.stops)
            exchange.first_token_ns = service.clock.now_ns()
        else:
            if service.adapters is not None:
                await service.adapters.fetch(exchange.trace, tenant.id)
            tokens = self._generate(job, limit)
        response = await self._send(job, tokens)
        if exchange.status == 200:
            service.lookups.keep(key, exchange.tokens)
        return response

    async def _send(self, job: _Job, tokens: Tokens) -> web.StreamResponse:
        service, exchange = self._service, job.exchange
        answer = Answer(
            job.api,
            f"{job.api.prefix}-{uuid.uuid4().hex}",
            exchange.trace.started_ns // 10**9,
            service.model,
        )
        if not job.asked.sampling.stream:
            return await whole(exchange, answer, job.stops, tokens)
        stream = Stream(job.request, exchange, service.clock, service.patience)
        return await stream.send(answer, job.asked, job.stops, tokens)

    async def _read(self, api: Api, request: web.Request, exchange: Exchange) -> Asked:
        """Read and check the body. Raises ApiError 400, 404, 408, 413 or 429."""
        service = self._service
        if self.in_flight > service.max_in_flight:
            raise _busy("too many connections at a time, try again later")
        async with service.bodies.reading(request) as body:
            asked = api.parse(body)
        model = asked.sampling.model
        if model not in ("", service.model):
            raise ApiError(404, f"the model {model!r} does not exist", "model_not_found")
        exchange.prompt_tokens = len(asked.prompt.encode(errors="replace")) + 1
        self._check_length(exchange.prompt_tokens, asked.max_tokens or 1)
        exchange.trace.describe(
            {
                "gen_ai.operation.name": api.operation,
                "gen_ai.provider.name": "tailcause",
                "gen_ai.request.model": service.model,
                "gen_ai.usage.input_tokens": exchange.prompt_tokens,
            }
        )
        if asked.max_tokens is not None:
            exchange.trace.describe({"gen_ai.request.max_tokens": asked.max_tokens})
        return asked

    def _check_length(self, prompt_tokens: int, max_tokens: int) -> None:
        wanted, most = prompt_tokens + max_tokens, self._most_tokens()
        if wanted > most:
            raise ApiError(
                400,
                f"the context holds {most} tokens: {prompt_tokens} of the prompt and "
                f"{max_tokens} to generate are {wanted}",
                "context_length_exceeded",
            )

    def _most_tokens(self) -> int:
        """Tokens that one request can have, prompt and completion together."""
        return min(self._service.context, self._service.engine.kv_tokens)

    async def _generate(self, job: _Job, limit: int) -> Tokens:
        """Tokens as the engine makes them, each with its finish reason."""
        inbox: asyncio.Queue[Event] = asyncio.Queue()  # at most as many as the limit

        def take(event: Event) -> None:
            inbox.put_nowait(event)
            if event.finish:  # a client that reads slowly holds nobody up
                job.place.give_back()

        generation = Generation(_task(job, limit), take, job.exchange.trace.link)
        job.exchange.generation = generation
        self._submit(generation)
        finish = ""
        while not finish:
            event = await inbox.get()
            if event.failed:
                raise ApiError(500, "the engine failed", "engine_failed")
            job.exchange.first_token_ns = generation.first_token_ns
            finish = event.finish
            yield event.token, finish

    def _submit(self, generation: Generation) -> None:
        try:
            self._service.engine.submit(generation)
        except QueueFullError as error:
            raise _busy(str(error)) from error
        except StoppedError as error:
            raise ApiError(503, str(error), "shutting_down", retry_after_s=RETRY_AFTER_S) from error

    def _finish(self, exchange: Exchange) -> None:
        if exchange.generation is not None and exchange.status != 200:
            self._service.engine.cancel(exchange.generation)
        exchange.record(self._service.metrics, self._service.clock)


def _task(job: _Job, limit: int) -> Task:
    sampling = job.asked.sampling
    return Task(
        prompt=encode(job.asked.prompt),
        max_tokens=limit,
        stop_at_eos=not sampling.ignore_eos,
        stops=job.stops,
        priority=sampling.priority,
        steps=sampling.steps,
        guided=sampling.guidance_scale > 1,
    )


def _busy(message: str) -> ApiError:
    return ApiError(429, message, "queue_full", retry_after_s=RETRY_AFTER_S)
