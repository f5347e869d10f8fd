"""OTLP/HTTP to a back end: protobuf, gzip, TLS.

Source: OTLP specification 1.x, sections "OTLP/HTTP Request" and "OTLP/HTTP Response".
"""

import asyncio
import time
import zlib
from collections.abc import Callable

from google.protobuf import message as protobuf

from agent.http.client import HttpClient, HttpError
from agent.otlp.batch import BATCH_HEADER, Batch
from agent.otlp.codec import PROTOBUF, Signal
from agent.otlp.retry import RETRYABLE_STATUSES, Retry, retry_after_s
from agent.otlp.status import empty_response, rejected_field
from agent.otlp.tls import client_context
from agent.otlp.transport import GZIP, Delivered, Outcome, Refused, Target, TokenFile

_GZIP_WINDOW = 31
_GZIP_LEVEL = 1  # of spans, level 6 makes as little in over twice the time
_IN_THREAD_BYTES = 1 << 16


class HttpTransport:
    """One connection, made at the first attempt and kept."""

    def __init__(
        self,
        target: Target,
        timeout_s: float,
        retry_after_max_s: float,
        unix_time_s: Callable[[], float] = time.time,
    ) -> None:
        self._target = target
        self._retry_after_max_s = retry_after_max_s
        self._unix_time_s = unix_time_s
        tls = client_context(target) if target.endpoint.startswith("https:") else None
        self._client = HttpClient(target.endpoint, tls, timeout_s)
        self._token = TokenFile(target.token_file)

    async def attempt(self, batch: Batch) -> Outcome:
        """Post it once."""
        headers = self._headers(batch)
        body = batch.body
        if self._target.compression == GZIP:
            headers["Content-Encoding"] = GZIP
            body = await gzip(body)
        try:
            answer = await self._client.post(f"/v1/{batch.signal}", body, headers)
        except (HttpError, OSError, TimeoutError) as exc:
            return Retry(str(exc) or type(exc).__name__)
        if answer.status in RETRYABLE_STATUSES:
            header = answer.headers.get("retry-after")
            after_s = retry_after_s(header, self._unix_time_s(), self._retry_after_max_s)
            return Retry(f"HTTP {answer.status}", after_s)
        if answer.status != 200:
            return Refused(f"HTTP {answer.status}")
        return Delivered(min(rejected(batch.signal, answer.body), batch.items))

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
        """Close the connection."""
        await self._client.close()


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
