"""Run one thing to its end unless something that is watched fails first."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")


def alarm() -> asyncio.Future[None]:
    """Return a future to watch; it may fail when nobody watches any more."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


async def guarded(main: Coroutine[Any, Any, _T], watched: Iterable[asyncio.Future[Any]]) -> _T:
    """Return the result of `main`; raise as soon as a watched future fails, which may end well before."""
    task = asyncio.ensure_future(main)
    pending: set[asyncio.Future[Any]] = {task, *watched}
    try:
        while not task.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for ended in done - {task}:
                ended.result()
        return task.result()
    finally:
        await cancel(task)


async def cancel(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait until it is gone."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
