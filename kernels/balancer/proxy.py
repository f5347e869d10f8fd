"""Passes requests on and answers back, byte by byte, and tries elsewhere while nothing has come back."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from kernels.balancer.backends import Backend, Backends
from kernels.balancer.headers import REQUEST_ID, for_client, for_replica, request_id
from kernels.balancer.metrics import Metrics
from kernels.balancer.retries import RetryBudget
from kernels.workload.openai_api import ApiError

log = logging.getLogger(__name__)

RETRY_AFTER_S = 1
_UNAVAILABLE = 503
_NOT_OURS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that the client library would add where the caller sent none."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one balancer."""

    max_in_flight: int = 1024
    max_body_bytes: int = 2_097_152
    connect_s: float = 1.0
    idle_s: float = 60.0


@dataclass(frozen=True)
class _Outgoing:
    """A request as every replica would get it."""

    id: str
    method: str
    path: str
    headers: CIMultiDict[str]
    body: bytes


class _UnansweredError(Exception):
    """A replica gave no first byte; `reason` is a metric's label."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Proxy:
    """The handler of every path that is not the balancer's own."""

    def __init__(self, backends: Backends, session: aiohttp.ClientSession, limits: Limits) -> None:
        self._backends = backends
        self._session = session
        self._limits = limits
        self._retries = RetryBudget()
        self.metrics = Metrics()
        self.in_flight = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request by the least loaded replica."""
        identifier = request_id(request)
        self.in_flight += 1
        try:
            return await self._admit(request, identifier)
        except ApiError as error:
            return self._refuse(error, identifier)
        finally:
            self.in_flight -= 1

    async def _admit(self, request: web.Request, identifier: str) -> web.StreamResponse:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge as error:
            raise ApiError(413, "the body is too large", "body_too_large") from error
        busy = sum(one.in_flight for one in self._backends.all)
        if busy >= self._limits.max_in_flight:
            raise ApiError(429, "too many requests", "queue_full", retry_after_s=RETRY_AFTER_S)
        path = request.rel_url.raw_path_qs
        if not path.startswith("/"):
            raise ApiError(400, "the target of a request must be a path", "invalid_target")
        headers = for_replica(request, identifier)
        outgoing = _Outgoing(identifier, request.method, path, headers, body)
        self._retries.earn()
        return await self._try_each(request, outgoing)

    async def _try_each(self, request: web.Request, outgoing: _Outgoing) -> web.StreamResponse:
        tried: list[Backend] = []
        while (backend := self._backends.pick(tried)) is not None:
            tried.append(backend)
            try:
                with backend.taken():
                    return await self._ask(request, outgoing, backend, last=len(tried) > 1)
            except _UnansweredError as error:
                if len(tried) > 1 or not self._retries.spend():
                    raise _unanswered(error.reason) from error
                self._note_retry(outgoing, backend, error.reason)
        raise _unanswered("no_replica")

    async def _ask(
        self, request: web.Request, outgoing: _Outgoing, backend: Backend, *, last: bool
    ) -> web.StreamResponse:
        upstream = await self._first_byte(outgoing, backend)
        try:
            if upstream.status == _UNAVAILABLE and not last and len(self._backends.all) > 1:
                raise _UnansweredError("unavailable")
            return await self._relay(request, outgoing, upstream, backend)
        finally:
            upstream.close()

    async def _first_byte(self, outgoing: _Outgoing, backend: Backend) -> aiohttp.ClientResponse:
        """Wait for the head of the answer, but no longer than the replica is healthy."""
        asking = asyncio.ensure_future(self._send(outgoing, backend))
        watching = asyncio.ensure_future(
            backend.down.wait() if backend.healthy else asyncio.Future()
        )
        try:
            await asyncio.wait({asking, watching}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            raise _UnansweredError("went_down")
        finally:
            watching.cancel()
            if not asking.done():
                await _give_up(asking)

    async def _send(self, outgoing: _Outgoing, backend: Backend) -> aiohttp.ClientResponse:
        try:
            return await self._session.request(
                outgoing.method,
                URL(backend.url + outgoing.path, encoded=True),
                headers=outgoing.headers,
                data=outgoing.body or None,
                allow_redirects=False,
                skip_auto_headers=_NOT_OURS,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            backend.fall(type(error).__name__)
            raise _UnansweredError("unreachable") from error
        except TimeoutError as error:
            # It may be at work on it still: asking another one would only add to that.
            raise ApiError(504, "the replica does not answer", "timeout") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _UnansweredError("disconnected") from error

    async def _relay(
        self,
        request: web.Request,
        outgoing: _Outgoing,
        upstream: aiohttp.ClientResponse,
        backend: Backend,
    ) -> web.StreamResponse:
        headers = for_client(upstream.headers, outgoing.id, backend.name)
        response = web.StreamResponse(
            status=upstream.status, reason=upstream.reason, headers=headers
        )
        await response.prepare(request)
        self.metrics.answered(backend.name, upstream.status)
        try:
            async for piece in upstream.content.iter_any():
                await response.write(piece)
        except (aiohttp.ClientPayloadError, TimeoutError) as error:
            self._cut(request, outgoing, backend, type(error).__name__)
            return response
        await response.write_eof()
        return response

    def _cut(
        self, request: web.Request, outgoing: _Outgoing, backend: Backend, reason: str
    ) -> None:
        """End the client's connection without the end of the answer: half of one must not look whole."""
        self.metrics.cut(backend.name, reason)
        fields = {"instance": backend.name, "reason": reason, "request_id": outgoing.id}
        log.warning("answer cut short", extra={"fields": fields})
        if request.transport is not None:
            request.transport.abort()

    def _note_retry(self, outgoing: _Outgoing, backend: Backend, reason: str) -> None:
        self.metrics.retried(backend.name, reason)
        fields = {"instance": backend.name, "reason": reason, "request_id": outgoing.id}
        log.info("request goes to another replica", extra={"fields": fields})

    def _refuse(self, error: ApiError, identifier: str) -> web.Response:
        self.metrics.refused(error.code)
        response = web.Response(
            status=error.status, body=error.body(), content_type="application/json"
        )
        response.headers[REQUEST_ID] = identifier
        if error.retry_after_s:
            response.headers["Retry-After"] = str(error.retry_after_s)
        return response


async def _give_up(asking: "asyncio.Future[aiohttp.ClientResponse]") -> None:
    """Close the connection on which nothing has come back, or only just."""
    asking.cancel()
    with suppress(asyncio.CancelledError, _UnansweredError, ApiError):
        (await asking).close()


def _unanswered(reason: str) -> ApiError:
    status = 502 if reason == "disconnected" else 503
    message = "no replica answered, try again later"
    return ApiError(status, message, reason, retry_after_s=RETRY_AFTER_S)
