"""Carries out a step: decodes what runs, prefills what was planned, and hands out the tokens."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kernels.workload.backend import Backend, Batch
from kernels.workload.clock import Clock
from kernels.workload.generation import Call, Event, Generation
from kernels.workload.kv_memory import KvMemory
from kernels.workload.planner import Chunk
from kernels.workload.rows import Rows


class Stepper:
    """Greedy decoding over the rows; in the engine's thread."""

    def __init__(self, backend: Backend, clock: Clock, rows: Rows, kv: KvMemory) -> None:
        self._backend = backend
        self._clock = clock
        self._rows = rows
        self._kv = kv

    def decode(self) -> tuple[Call, list[Event]]:
        """One token for every row that decodes."""
        some = tuple(self._rows.decoding)
        tokens = np.array([[one.tokens[-1]] for one in some], np.int64)
        return self._call(0, tokens, some, [1] * len(some), prefill=False)

    def prefill(self, group: Sequence[Chunk]) -> tuple[Call, list[Event]]:
        """Compute chunks of the first prompts in the queue; those that are complete get their first token."""
        some = tuple(chunk.generation for chunk in group)
        counts = [chunk.count for chunk in group]
        tokens = np.zeros((len(some), max(counts)), np.int64)
        now_ns = self._clock.now_ns()
        for row, (one, count) in enumerate(zip(some, counts, strict=True)):
            one.scheduled_ns = one.scheduled_ns or now_ns
            tokens[row, :count] = one.sequence[one.cached : one.cached + count]
        call, events = self._call(len(self._rows.decoding), tokens, some, counts, prefill=True)
        self._rows.promote(len(events))
        return call, events

    def retire(self, *, keeps_batch: bool) -> None:
        """Free the rows of those that are finished; with `keeps_batch` only once all are."""
        if keeps_batch and not all(one.done for one in self._rows):
            return
        for one in reversed(tuple(self._rows)):  # from the end, so that little is moved
            if one.done:
                self._kv.release(one)
                self._rows.leave(one)

    def _call(
        self,
        first_row: int,
        tokens: NDArray[np.int64],
        some: tuple[Generation, ...],
        counts: list[int],
        *,
        prefill: bool,
    ) -> tuple[Call, list[Event]]:
        start_ns = self._clock.now_ns()
        before = [one.cached for one in some]
        useful = sum(count for one, count in zip(some, counts, strict=True) if not one.done)
        past, fresh = np.array(before, np.int64), np.array(counts, np.int64)
        batch = Batch(first_row, tokens, past, fresh, self._held())
        chosen: list[int] = _greedy(self._backend.forward(batch))
        now_ns = self._clock.now_ns()
        events = []
        for at, one in enumerate(some):
            if one.done:
                continue
            one.cached += counts[at]
            self._kv.keep(one, first_row + at, before[at])
            if one.cached == one.length:
                events.append(Event(one, chosen[at], one.accept(chosen[at], now_ns)))
        work = (sum(counts), sum(before), some, tokens.size, useful)
        return Call(prefill, start_ns, now_ns, *work), events

    def _held(self) -> int:
        """Rows from the first one on that hold something now."""
        held = len(self._rows.decoding)
        for at, one in enumerate(self._rows.prefilling):
            if one.cached:
                held = len(self._rows.decoding) + at + 1
        return held


def _greedy(logits: NDArray[np.float32]) -> list[int]:
    chosen: list[int] = logits.argmax(axis=1).tolist()
    return chosen
