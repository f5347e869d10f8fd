"""The collectors at work: when each is called, and which ones run, which can be changed meanwhile.

A value that nobody exports need not be read. So a signal is read when somebody is about to export it, and otherwise just
often enough to know that it can be; only those of which every reading counts are read at each interval. Exports are the
fresher for it: they carry values of that moment.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Mapping

from agent.collectors.base import CollectorContext
from agent.collectors.watch import SignalStatus
from agent.config import Config
from agent.pace import Pace
from agent.pipeline import Board, Watched, close, disabled_samples, watches
from agent.telemetry.model import Sample

_FRESH = 0.5
"""Of an interval: what was read so recently is not read again for whoever asks."""


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
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._begun_s: dict[str, float] = {}
        self._collected_s: dict[str, float] = {}
        self._group: asyncio.TaskGroup | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Collect every signal now, and then each at its pace."""
        self._group = group
        for watched in self._watched.values():
            self._start_one(group, watched)

    def _start_one(self, group: asyncio.TaskGroup, watched: Watched) -> None:
        self._tasks[watched.entry.name] = group.create_task(self._collect_for_ever(group, watched))

    async def _collect_for_ever(self, group: asyncio.TaskGroup, watched: Watched) -> None:
        beats = watched.entry.beats
        due_s = asyncio.get_running_loop().time()
        while True:
            if beats == 1 or self._age_s(watched) >= beats * self._pace.interval_s:
                await asyncio.wait({self._call(group, watched)})
            due_s = await self._pace.next(due_s)

    def _age_s(self, watched: Watched) -> float:
        return time.monotonic() - self._begun_s.get(watched.entry.name, float("-inf"))

    def _call(self, group: asyncio.TaskGroup, watched: Watched) -> "asyncio.Task[None]":
        """Begin a collection, or return the one that is under way."""
        name = watched.entry.name
        call = self._calls.get(name)
        if call is None or call.done():
            self._begun_s[name] = time.monotonic()
            call = self._calls[name] = group.create_task(self._collect(watched))
        return call

    async def _collect(self, watched: Watched) -> None:
        self._board.put(watched.entry.name, await watched.watch.collect())
        self._collected_s[watched.entry.name] = time.monotonic()

    async def refresh(self, at_most_s: float = math.inf) -> None:
        """Read what is about to be exported, unless it was read just now.

        A signal that hangs is waited for once, until its deadline or for `at_most_s`.
        """
        if self._group is None:
            return
        old_s = _FRESH * self._pace.interval_s
        stale = [w for w in self._watched.values() if w.entry.beats > 1 and self._age_s(w) >= old_s]
        if stale:
            calls = {self._call(self._group, watched) for watched in stale}
            await asyncio.wait(calls, timeout=min(self._deadline_s, at_most_s))

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
            await _end(self._calls.pop(name, None))
            self._begun_s.pop(name, None)
            self._collected_s.pop(name, None)
            self._board.put(name, ())
        await close(gone)

    async def stop(self) -> None:
        """End the tasks and let go of what the collectors hold; who asks from now on gets what there is."""
        self._group = None
        for task in (*self._tasks.values(), *self._calls.values()):
            task.cancel()
        await close(self._watched.values())

    def status(self) -> Mapping[str, SignalStatus]:
        """Return how every signal fares that is not switched off."""
        return {name: watched.watch.status for name, watched in self._watched.items()}

    @property
    def collected_s(self) -> Mapping[str, float]:
        """When the last call of each signal ended, on the monotonic clock, whatever came of it."""
        return self._collected_s

    def patience_s(self, name: str) -> float:
        """Return how long a signal may take from one end of a call to the next, with time to spare."""
        beats = self._watched[name].entry.beats
        return (beats + 2) * self._pace.interval_s + self._deadline_s + 10.0

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
