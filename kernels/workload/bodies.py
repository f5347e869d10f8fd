"""Reading bodies within bounds: of each, of all that are on their way, and of the time that one may take."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from kernels.workload.openai_api import ApiError

RETRY_AFTER_S = 1


@dataclass(frozen=True)
class BodyLimits:
    """Bytes of one body and of all together, seconds for one."""

    each_bytes: int
    all_bytes: int = 64 * 1024 * 1024
    timeout_s: float = 30.0


class Bodies:
    """Every body that has come in part or whole and is not read yet; for one event loop."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self.held_bytes = 0

    @asynccontextmanager
    async def reading(self, request: web.Request) -> AsyncIterator[bytes]:
        """Give the whole body, held until the end of the block. Raises ApiError 408, 413 or 429."""
        body = bytearray()
        try:
            await self._read(request, body)
            yield bytes(body)
        finally:
            self.held_bytes -= len(body)

    async def _read(self, request: web.Request, body: bytearray) -> None:
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                async for piece in request.content.iter_any():
                    self.held_bytes += len(piece)
                    body += piece
                    self._check(len(body))
        except TimeoutError as error:
            raise ApiError(408, "the body did not come in time", "body_timeout") from error

    def _check(self, size: int) -> None:
        if size > self._limits.each_bytes:
            raise ApiError(
                413, f"the body is larger than {self._limits.each_bytes} bytes", "body_too_large"
            )
        if self.held_bytes > self._limits.all_bytes:
            raise ApiError(
                429,
                "too many bodies at a time, try again later",
                "busy",
                retry_after_s=RETRY_AFTER_S,
            )
