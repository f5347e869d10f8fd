"""One streamed request, timed from its departure to its first and last token."""

import time
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import aiohttp

from kernels.errors import WorkloadError
from kernels.load.plan import Planned
from kernels.load.tally import Answer, Outcome

_DONE = b"[DONE]"
_TOO_MANY = 429


_TIMED_OUT = "timed out"


@dataclass(frozen=True)
class Patience:
    """How long an attempt may take, and how often one that took longer is made again, at once."""

    timeout_s: float = 60.0
    retries: int = 0


PATIENT = Patience()


class Client:
    """Sends each request over a connection of its own, so that no deploy breaks a kept-alive one."""

    def __init__(self, url: str, patience: Patience = PATIENT) -> None:
        self._url = url.rstrip("/")
        self._retries = patience.retries
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=patience.timeout_s),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def check(self) -> None:
        """Make sure that somebody answers there."""
        try:
            async with self._session.get(f"{self._url}/healthz") as response:
                response.raise_for_status()
        except (aiohttp.ClientError, TimeoutError, ValueError) as exc:
            raise WorkloadError(f"no healthy server at {self._url}: {exc}") from exc

    async def send(self, planned: Planned) -> Answer:
        """Send one request, again after each time-out, and read its stream; its time is that of all attempts."""
        departed = time.perf_counter()
        attempts = 1
        answer = await self._attempt(planned, departed)
        while answer.reason == _TIMED_OUT and attempts <= self._retries:
            attempts += 1
            answer = await self._attempt(planned, departed)
        return replace(answer, attempts=attempts)

    async def _attempt(self, planned: Planned, departed: float) -> Answer:
        body = {
            "prompt": planned.prompt,
            "max_tokens": planned.max_tokens,
            "user": planned.tenant,
            "stream": True,
        }
        try:
            async with self._session.post(f"{self._url}/v1/completions", json=body) as response:
                if response.status == _TOO_MANY:
                    return Answer(Outcome.REJECTED)
                if response.status != 200:
                    return Answer(Outcome.FAILED, reason=f"status {response.status}")
                return await _read(response, departed)
        except TimeoutError:
            return Answer(Outcome.FAILED, reason=_TIMED_OUT)
        except aiohttp.ClientError as exc:
            return Answer(Outcome.FAILED, reason=type(exc).__name__)


async def _read(response: aiohttp.ClientResponse, departed: float) -> Answer:
    """Read server-sent events up to `[DONE]`; a stream that ends before it is a failure."""
    first_token_s = 0.0
    async for line in response.content:
        event = line.removeprefix(b"data:").strip()
        if not line.startswith(b"data:"):
            continue
        if event == _DONE:
            total_s = time.perf_counter() - departed
            return Answer(Outcome.OK, first_token_s or total_s, total_s)
        if event.startswith(b'{"error"'):
            return Answer(Outcome.FAILED, reason="error in the stream")
        first_token_s = first_token_s or time.perf_counter() - departed
    return Answer(Outcome.FAILED, reason="stream cut short")
