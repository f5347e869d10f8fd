"""The clients of a run: they stream their answers, note when each piece comes and what it says."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import aiohttp
import msgspec

from tests.bench.agent_process import FailedError
from tests.bench.workload_traces import Asked

_PATIENCE_S = 120.0


class _Choice(msgspec.Struct):
    text: str = ""


class _Event(msgspec.Struct):
    choices: list[_Choice]


_EVENT = msgspec.json.Decoder(_Event)


@dataclass(frozen=True)
class Reply:
    """A whole answer: its text, and when it was asked for and each of its pieces came, in seconds."""

    text: str
    departed_s: float
    pieces_s: tuple[float, ...]

    @property
    def total_s(self) -> float:
        """From the departure to the last piece."""
        return self.pieces_s[-1] - self.departed_s

    @property
    def first_s(self) -> float:
        """From the departure to the first piece."""
        return self.pieces_s[0] - self.departed_s

    @property
    def gaps_s(self) -> list[float]:
        """Between one piece and the next."""
        return [
            later - earlier
            for earlier, later in zip(self.pieces_s, self.pieces_s[1:], strict=False)
        ]


@dataclass(frozen=True)
class Run:
    """The replies to a list of requests, in its order."""

    replies: Sequence[Reply]

    @property
    def took_s(self) -> float:
        """From the first departure to the last piece."""
        return max(one.pieces_s[-1] for one in self.replies) - min(
            one.departed_s for one in self.replies
        )

    def saturated(self, rows: int) -> float:
        """Return tokens a second for as long as there were as many requests as rows; what comes after says nothing of a full server."""
        start_s = min(one.departed_s for one in self.replies)
        ends_s = sorted(one.pieces_s[-1] for one in self.replies)
        until_s = ends_s[max(0, len(ends_s) - rows)]
        tokens = sum(at <= until_s for one in self.replies for at in one.pieces_s)
        return tokens / (until_s - start_s)

    @property
    def totals_s(self) -> list[float]:
        """How long each request took."""
        return [one.total_s for one in self.replies]

    def open_at(self, moment_s: float) -> int:
        """Count the requests that are under way at a moment of the clients' clock."""
        return sum(one.departed_s <= moment_s < one.pieces_s[-1] for one in self.replies)

    @property
    def left_at_the_end(self) -> int:
        """Count the requests under way when the last one departs: the queue that the run has built up."""
        return self.open_at(max(one.departed_s for one in self.replies))


def at_once(url: str, asked: Sequence[Asked]) -> Run:
    """Send everything at once, so that the server is never without work."""
    return asyncio.run(_send(url, asked, lambda _: 0.0))


def at_rate(url: str, asked: Sequence[Asked], rate: float) -> Run:
    """Send each at its time, at so many a second on average, whether the answers come or not."""
    first = asked[0].at
    return asyncio.run(_send(url, asked, lambda one: (one.at - first) / rate))


def by_clients(url: str, asked: Sequence[Asked], clients: int) -> Run:
    """Send each as soon as one of so many clients has its last answer, so that as many always run."""
    return asyncio.run(_send(url, asked, lambda _: 0.0, clients))


async def _send(
    url: str, asked: Sequence[Asked], after_s: Callable[[Asked], float], clients: int = 0
) -> Run:
    timeout = aiohttp.ClientTimeout(total=_PATIENCE_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        start_s = time.perf_counter() + 0.02
        free = asyncio.Semaphore(clients or len(asked))  # first come, first served

        async def send(one: Asked) -> Reply:
            at_s = start_s + after_s(one)
            await asyncio.sleep(max(0.0, at_s - time.perf_counter()))
            async with free:
                # Not from when this loop came to it: a sender that is late would hide what it waits for.
                departed_s = time.perf_counter() if clients else at_s
                return await _one(session, url, one, departed_s)

        tasks = [asyncio.create_task(send(one)) for one in asked]
        try:
            return Run(await asyncio.gather(*tasks))
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise FailedError(f"a request failed: {type(exc).__name__} {exc}") from exc
        finally:
            for task in tasks:
                task.cancel()


async def _one(session: aiohttp.ClientSession, url: str, asked: Asked, departed_s: float) -> Reply:
    body = {
        "prompt": asked.prompt,
        "max_tokens": asked.max_tokens,
        "ignore_eos": True,
        "stream": True,
    }
    texts: list[str] = []
    pieces: list[float] = []
    async with session.post(f"{url}/v1/completions", json=body) as response:
        if response.status != 200:
            raise FailedError(f"answered {response.status}: {(await response.text())[:200]}")
        async for line in response.content:
            if line.startswith(b"data: {"):
                pieces.append(time.perf_counter())
                texts += [choice.text for choice in _EVENT.decode(line[6:]).choices]
            elif line.startswith(b"data: [DONE]"):
                break
        else:
            raise FailedError("a stream was cut short")
    if len(pieces) != asked.max_tokens:
        raise FailedError(f"{asked.max_tokens} tokens asked for, {len(pieces)} came")
    return Reply("".join(texts), departed_s, tuple(pieces))
