"""Taking a batch once that comes twice, because its sender did not hear the first answer."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_REMEMBERED = 4096
_LONGEST_ID = 64


class RecentBatches(Generic[T]):
    """Remembers what the last batches were answered with, by the id that their sender gave them.

    A batch that comes again while the first one is at work waits for its answer. One that failed is forgotten,
    so that it can be sent again.
    """

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._remembered = remembered
        self._answers: OrderedDict[str, asyncio.Future[T]] = OrderedDict()
        self.duplicates = 0
        """How many batches were answered without being taken."""

    async def once(self, batch_id: str, take: Callable[[], Awaitable[T]]) -> T:
        """Return what `take` returns, or returned for this id; an id that is empty or too long is none."""
        if not batch_id or len(batch_id) > _LONGEST_ID:
            return await take()
        while (known := self._answers.get(batch_id)) is not None:
            await asyncio.wait((known,))
            if self._answers.get(batch_id) is known:
                self.duplicates += 1
                return known.result()
        return await self._first(batch_id, take)

    async def _first(self, batch_id: str, take: Callable[[], Awaitable[T]]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._answers[batch_id] = answer
        try:
            result = await take()
        except BaseException:
            if self._answers.get(batch_id) is answer:
                del self._answers[batch_id]
            answer.cancel()
            raise
        answer.set_result(result)
        self._forget_oldest()
        return result

    def _forget_oldest(self) -> None:
        """Forget the oldest that are answered; those at work are as few as the receiver lets in."""
        while len(self._answers) > self._remembered:
            batch_id, answer = next(iter(self._answers.items()))
            if not answer.done():
                return
            del self._answers[batch_id]
