"""Completions kept in Redis, where replicas and releases share them."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from kernels.workload.breaker import OPEN, Breaker, UnavailableError
from kernels.workload.spans import Value
from kernels.workload.tokenizer import VOCABULARY

LIFETIME_S = 3600
CONNECTIONS = 16
WAITING_WRITES = 256

_STORED = np.dtype("<u2")  # two bytes a token: the vocabulary has 258


class RedisCache:
    """Looked up within a deadline, written behind the answers; what cannot be written is dropped and counted.

    The prefix names the model: another one completes the same prompt otherwise.
    """

    def __init__(
        self, url: str, model: str, timeout_s: float, dropped: Callable[[str], None]
    ) -> None:
        self._timeout_s = timeout_s
        self._dropped = dropped
        self._prefix = f"tailcause:completion:{model}:".encode()
        self._client = _client(url, timeout_s)
        self._breaker = Breaker("redis", self._ping)
        self._writes: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue(WAITING_WRITES)
        self._writer: asyncio.Task[None] | None = None
        self.attributes = _attributes(url)

    @property
    def available(self) -> bool:
        """Whether it is asked at all."""
        return self._breaker.closed

    async def open(self) -> None:
        """Connect; a Redis that is away is waited for while serving."""
        try:
            await self._ping()
        except UnavailableError as error:
            self._breaker.trip(error)

    async def find(self, key: bytes) -> tuple[int, ...] | None:
        """Tokens of the completion, or None. Raises UnavailableError."""
        self._breaker.check()
        try:
            stored = await self._within(self._client.get(self._prefix + key))
        except UnavailableError as error:
            self._breaker.trip(error)
            raise
        return None if stored is None else _tokens(stored)

    def put(self, key: bytes, tokens: Sequence[int]) -> None:
        """Have a finished completion written soon, for an hour; nobody waits for it."""
        if not self.available:
            self._dropped(OPEN)
            return
        self._writer = self._writer or asyncio.create_task(self._write_behind())
        try:
            self._writes.put_nowait((key, np.array(tokens, _STORED).tobytes()))
        except asyncio.QueueFull:
            self._dropped("queue_full")

    async def close(self) -> None:
        """Let go of it; what has not been written is no loss."""
        self._breaker.stop()
        if self._writer is not None:
            self._writer.cancel()
        with suppress(RedisError, OSError, TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                await self._client.aclose()

    async def _write_behind(self) -> None:
        while True:
            key, value = await self._writes.get()
            try:
                self._breaker.check()
                await self._within(self._client.set(self._prefix + key, value, ex=LIFETIME_S))
            except UnavailableError as error:
                self._dropped(error.reason)
                if error.reason != OPEN:
                    self._breaker.trip(error)

    async def _ping(self) -> None:
        """Ask on a new connection; the idle ones of before an outage would only fail one after the other."""
        await self._within(self._client.connection_pool.disconnect(inuse_connections=False))
        await self._within(self._client.ping())

    async def _within(self, call: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await call
        except (TimeoutError, RedisTimeoutError) as error:
            raise UnavailableError("timeout") from error
        except (RedisError, OSError) as error:
            raise UnavailableError(type(error).__name__, str(error)) from error


def _client(url: str, timeout_s: float) -> Redis:
    """Make a client that tries once: a request does not wait for second tries, the breaker makes them."""
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=CONNECTIONS,
        timeout=timeout_s,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
        password=os.environ.get("REDISCLI_AUTH") or None,
    )
    return Redis.from_pool(pool)


def _attributes(url: str) -> dict[str, Value]:
    """Attributes of a look-up's span, by OpenTelemetry's conventions for Redis."""
    parts = urlsplit(url)
    index = parts.path.strip("/")
    attributes: dict[str, Value] = {
        "db.system.name": "redis",
        "db.operation.name": "GET",
        "db.namespace": index if index.isdigit() else "0",
        "server.address": parts.hostname or parts.path,
    }
    if parts.port:
        attributes["server.port"] = parts.port
    return attributes


def _tokens(stored: bytes) -> tuple[int, ...]:
    """Read what somebody has put there, who need not have been us. Raises UnavailableError."""
    if not stored or len(stored) % _STORED.itemsize:
        raise UnavailableError("invalid_value", "a stored completion is not one of ours")
    tokens = np.frombuffer(stored, _STORED)
    if tokens.max() >= VOCABULARY:
        raise UnavailableError("invalid_value", "a stored completion is not one of ours")
    return tuple(tokens.tolist())
