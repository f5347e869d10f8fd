"""Time in which the agent did nothing for anybody: the event loop late, the garbage collector at work."""

import asyncio
import gc
import time
from bisect import bisect_left
from typing import Literal

from agent.telemetry.model import ExplicitBuckets, Sample

_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_LOOK_S = 0.5
_RECENT = 0.9
"""What a peak is multiplied by at each look that is better: after ten of them little is left."""


class Durations:
    """A cumulative histogram."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._counts = [0] * (len(_BOUNDS_S) + 1)
        self._sum_s = 0.0
        self._start_unix_ns = time.time_ns()

    def add(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(_BOUNDS_S, seconds)] += 1
        self._sum_s += seconds

    def sample(self) -> Sample:
        """Return all of them so far."""
        explicit = ExplicitBuckets(_BOUNDS_S, tuple(self._counts), self._sum_s)
        return Sample(
            self._metric,
            sum(self._counts),
            time.time_ns(),
            start_unix_ns=self._start_unix_ns,
            explicit=explicit,
        )


class Pauses:
    """Measures both; `start` begins, `stop` ends the part that is global to the interpreter."""

    def __init__(self) -> None:
        self._loop = Durations("tailcause.agent.loop.lag")
        self._gc = Durations("tailcause.agent.gc.pause")
        self._gc_began_s = 0.0
        self.lag_s = 0.0
        """How late the loop was lately, at its worst."""

    def start(self, group: asyncio.TaskGroup) -> "asyncio.Task[None]":
        """Measure from now on."""
        gc.callbacks.append(self._on_gc)
        return group.create_task(self._look_for_ever())

    def stop(self) -> None:
        """Measure no collections any more."""
        gc.callbacks.remove(self._on_gc)

    def own_samples(self) -> list[Sample]:
        """Return the two histograms."""
        return [self._loop.sample(), self._gc.sample()]

    def _on_gc(self, phase: Literal["start", "stop"], _: dict[str, int]) -> None:
        now_s = time.perf_counter()
        if phase == "start":
            self._gc_began_s = now_s
        elif self._gc_began_s:
            self._gc.add(now_s - self._gc_began_s)

    async def _look_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + _LOOK_S
            await asyncio.sleep(_LOOK_S)
            late_s = max(0.0, loop.time() - due_s)
            self._loop.add(late_s)
            self.lag_s = max(late_s, self.lag_s * _RECENT)
