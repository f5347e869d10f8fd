"""The collectors at work: one task for each, all at one pace; which ones run can be changed meanwhile."""

import asyncio
import contextlib
import time
from collections.abc import Mapping

from agent.collectors.base import CollectorContext
from agent.collectors.watch import SignalStatus
from agent.config import Config
from agent.pace import Pace
from agent.pipeline import Board, Watched, close, disabled_samples, watches
from agent.telemetry.model import Sample


class Collecting:
    """Fills the board. A signal that is switched off is let go of, and its values are gone at once."""

    def __init__(self, context: CollectorContext, board: Board, config: Config) -> None:
        self._context = context
        self._board = board
        self._disabled = config.disable
        self._deadline_s = config.deadline
        self._pace = Pace(config.interval)
        built = watches(context, config.deadline, config.disable)
        self._watched = {watched.entry.name: watched for watched in built}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._collected_s: dict[str, float] = {}
        self._group: asyncio.TaskGroup | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Collect every signal now, and then at the pace."""
        self._group = group
        for watched in self._watched.values():
            self._start_one(group, watched)

    def _start_one(self, group: asyncio.TaskGroup, watched: Watched) -> None:
        self._tasks[watched.entry.name] = group.create_task(self._collect_for_ever(watched))

    async def _collect_for_ever(self, watched: Watched) -> None:
        name = watched.entry.name
        due_s = asyncio.get_running_loop().time()
        while True:
            self._board.put(name, await watched.watch.collect())
            self._collected_s[name] = time.monotonic()
            due_s = await self._pace.next(due_s)

    async def change(self, config: Config) -> None:
        """Follow the settings `interval`, `deadline` and `disable`."""
        self._pace.change(config.interval)
        self._deadline_s = config.deadline
        for watched in self._watched.values():
            watched.watch.deadline_s = config.deadline
        self._disabled = config.disable
        await self._let_go([name for name in self._watched if name in config.disable])
        known = (*self._watched, *config.disable)
        for watched in watches(self._context, config.deadline, known):
            self._watched[watched.entry.name] = watched
            if self._group is not None:
                self._start_one(self._group, watched)

    async def _let_go(self, names: list[str]) -> None:
        gone = [self._watched.pop(name) for name in names]
        for name in names:
            await _end(self._tasks.pop(name, None))
            self._collected_s.pop(name, None)
            self._board.put(name, ())
        await close(gone)

    async def stop(self) -> None:
        """End the tasks and let go of what the collectors hold."""
        for task in self._tasks.values():
            task.cancel()
        await close(self._watched.values())

    def status(self) -> Mapping[str, SignalStatus]:
        """Return how every signal fares that is not switched off."""
        return {name: watched.watch.status for name, watched in self._watched.items()}

    @property
    def collected_s(self) -> Mapping[str, float]:
        """When the last call of each signal ended, on the monotonic clock, whatever came of it."""
        return self._collected_s

    @property
    def patience_s(self) -> float:
        """How long a signal may take from one end of a call to the next, with time to spare."""
        return 3 * self._pace.interval_s + self._deadline_s + 10.0

    def own_samples(self) -> list[Sample]:
        """Return the states of all signals."""
        samples = disabled_samples(self._disabled, time.time_ns())
        for watched in self._watched.values():
            samples += watched.watch.own_samples()
        return samples


async def _end(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
