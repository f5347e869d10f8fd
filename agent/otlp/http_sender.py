"""OTLP/HTTP to a back end: protobuf, gzip, TLS.

Source: OTLP specification 1.x, sections "OTLP/HTTP Request" and "OTLP/HTTP Response".
"""

import asyncio
import time
import zlib
from collections.abc import Callable

import aiohttp
from google.protobuf import message as protobuf

from agent.otlp.batch import BATCH_HEADER, Batch
from agent.otlp.codec import PROTOBUF, Signal
from agent.otlp.retry import RETRYABLE_STATUSES, Retry, retry_after_s
from agent.otlp.status import empty_response, rejected_field
from agent.otlp.tls import client_context
from agent.otlp.transport import GZIP, Delivered, Outcome, Refused, Target, TokenFile

_RESPONSE_BYTES = 1 << 16
_GZIP_WINDOW = 31
_GZIP_LEVEL = 1  # of spans, level 6 makes as little in over twice the time
_IN_THREAD_BYTES = 1 << 16


class HttpTransport:
    """One session, made at the first attempt."""

    def __init__(
        self,
        target: Target,
        timeout_s: float,
        retry_after_max_s: float,
        unix_time_s: Callable[[], float] = time.time,
    ) -> None:
        self._target = target
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._retry_after_max_s = retry_after_max_s
        self._unix_time_s = unix_time_s
        self._endpoint = target.endpoint.rstrip("/")
        self._tls = client_context(target) if self._endpoint.startswith("https:") else None
        self._token = TokenFile(target.token_file)
        self._session: aiohttp.ClientSession | None = None

    async def attempt(self, batch: Batch) -> Outcome:
        """Post it once."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        headers = self._headers(batch)
        body = batch.body
        if self._target.compression == GZIP:
            headers["Content-Encoding"] = GZIP
            body = await gzip(body)
        try:
            async with self._session.post(
                f"{self._endpoint}/v1/{batch.signal}",
                data=body,
                headers=headers,
                allow_redirects=False,
                ssl=self._tls if self._tls is not None else True,
            ) as response:
                answer = await response.content.read(_RESPONSE_BYTES)
        except (aiohttp.ClientError, OSError, TimeoutError) as exc:
            return Retry(str(exc) or type(exc).__name__)
        if response.status in RETRYABLE_STATUSES:
            header = response.headers.get("Retry-After")
            after_s = retry_after_s(header, self._unix_time_s(), self._retry_after_max_s)
            return Retry(f"HTTP {response.status}", after_s)
        if response.status != 200:
            return Refused(f"HTTP {response.status}")
        return Delivered(min(rejected(batch.signal, answer), batch.items))

    def _headers(self, batch: Batch) -> dict[str, str]:
        headers = {
            **self._target.headers,
            "Content-Type": PROTOBUF,
            BATCH_HEADER: batch.batch_id.hex(),
        }
        if authorization := self._token.authorization():
            headers["Authorization"] = authorization
        return headers

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None


async def gzip(body: bytes) -> bytes:
    """Return a body as gzip; a large one is compressed beside the event loop."""
    if len(body) < _IN_THREAD_BYTES:
        return zlib.compress(body, _GZIP_LEVEL, _GZIP_WINDOW)
    return await asyncio.to_thread(zlib.compress, body, _GZIP_LEVEL, _GZIP_WINDOW)


def rejected(signal: Signal, answer: bytes) -> int:
    """Return how many items a success rejected; an unreadable answer rejects none."""
    response = empty_response(signal)
    try:
        response.ParseFromString(answer)
    except protobuf.DecodeError:
        return 0
    count: int = getattr(response.partial_success, rejected_field(signal))
    return max(0, count)
