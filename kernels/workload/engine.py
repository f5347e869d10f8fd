"""The engine: one thread that turns waiting requests into tokens, step by step."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kernels.errors import WorkloadError
from kernels.workload.backend import Backend, Batch
from kernels.workload.clock import Clock
from kernels.workload.generation import Event, Generation, Step
from kernels.workload.scheduler import Load, Policy
from kernels.workload.tokenizer import EOS

log = logging.getLogger(__name__)


class QueueFullError(WorkloadError):
    """The waiting queue is full; try again later."""


class StoppedError(WorkloadError):
    """The engine takes no more requests."""


class StepObserver(Protocol):
    """Whoever wants to see the steps; called in the engine's thread."""

    def open(self) -> None:
        """Begin a step; harmless when one has begun."""

    def close(self, step: Step, generations: Sequence[Generation], *, go_on: bool) -> None:
        """End the step that has begun, saying what was in it; with `go_on` the next one begins at the same moment."""

    def drop(self) -> None:
        """Forget a step that has begun; harmless without one."""


@dataclass(frozen=True)
class Limits:
    """How much the engine takes on at a time."""

    max_running: int
    max_queue: int
    kv_tokens: int


@dataclass(frozen=True)
class Ports:
    """The engine's outside: the runtime, the policy, the clock and who listens."""

    backend: Backend
    policy: Policy
    clock: Clock
    observer: StepObserver
    deliver: Callable[[Sequence[Event]], None]
    failed: Callable[[], None]


class Engine:
    """Greedy decoding of many requests on one thread; `submit` and `cancel` from any other."""

    def __init__(self, ports: Ports, limits: Limits) -> None:
        self._ports = ports
        self._limits = limits
        self._changed = threading.Condition()
        self._waiting: deque[Generation] = deque()
        self._running: list[Generation] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)

    def start(self) -> None:
        """Start the engine's thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Let the thread end after what it holds; False when it is still at it after `timeout_s`."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def submit(self, generation: Generation) -> None:
        """Queue a request. Raises QueueFullError or StoppedError."""
        with self._changed:
            if self._stopping:
                raise StoppedError("the server is shutting down")
            if len(self._waiting) >= self._limits.max_queue + self._idle_rows():
                raise QueueFullError("the queue is full, try again later")
            generation.submitted_ns = self._ports.clock.now_ns()
            self._waiting.append(generation)
            self._changed.notify()

    def cancel(self, generation: Generation) -> None:
        """Forget a request whose client has gone; nothing happens when it is finished."""
        with self._changed:
            generation.cancelled = True
            self._changed.notify()

    @property
    def running(self) -> int:
        """Requests that hold a row."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that wait for a row."""
        return len(self._waiting)

    @property
    def kv_used_ratio(self) -> float:
        """Share of the KV token budget that holds tokens."""
        return sum(one.cached for one in tuple(self._running)) / self._limits.kv_tokens

    def _idle_rows(self) -> int:
        """Rows that the next waiting requests take at once; a queue of 0 still serves."""
        return max(0, self._limits.max_running - len(self._running))

    def _main(self) -> None:
        try:
            while self._turn():
                pass
        except Exception:  # the thread's boundary: its owner must learn of any failure
            log.exception("engine failed")
            with self._changed:
                self._stopping = True
                lost = [*self._running, *self._waiting]
            self._ports.deliver([Event(one, 0, failed=True) for one in lost])
            self._ports.failed()

    def _turn(self) -> bool:
        """Wait for work and do one prefill step, one decode step or both; False when stopped."""
        admitted = self._admit()
        if admitted is None:
            return False
        if admitted:
            self._prefill(admitted)
        if self._running:
            self._decode()
        return True

    def _admit(self) -> list[Generation] | None:
        """Take what the policy admits, sleeping while there is nothing to do; None to stop."""
        with self._changed:
            while True:
                self._drop_cancelled()
                decision = self._ports.policy.decide(self._load())
                admitted = self._take(decision.admit)
                if admitted or self._running:
                    return admitted
                if self._stopping and not self._waiting:
                    return None
                self._ports.observer.drop()  # asleep is not a step
                self._changed.wait(decision.ask_again_s)

    def _load(self) -> Load:
        oldest_ns = (
            self._ports.clock.now_ns() - self._waiting[0].submitted_ns if self._waiting else 0
        )
        running = len(self._running)
        return Load(
            len(self._waiting), running, self._limits.max_running - running, oldest_ns / 1e9
        )

    def _take(self, count: int) -> list[Generation]:
        """Take the first waiting requests, as far as their KV reservations fit the budget."""
        reserved = sum(one.reserved_tokens for one in self._running)
        taken: list[Generation] = []
        while len(taken) < count and self._waiting:
            reserved += self._waiting[0].reserved_tokens
            if reserved > self._limits.kv_tokens:
                break
            taken.append(self._waiting.popleft())
        return taken

    def _drop_cancelled(self) -> None:
        if any(one.cancelled for one in self._waiting):
            self._waiting = deque(one for one in self._waiting if not one.cancelled)
        for one in self._running:
            one.done = one.done or one.cancelled
        self._retire()

    def _prefill(self, admitted: list[Generation]) -> None:
        now_ns = self._ports.clock.now_ns()
        width = max(len(one.prompt) for one in admitted)
        tokens = np.zeros((len(admitted), width), np.int64)
        for row, one in enumerate(admitted):
            one.scheduled_ns = now_ns
            tokens[row, : len(one.prompt)] = one.prompt
        fresh = np.array([len(one.prompt) for one in admitted], np.int64)
        first = len(self._running)
        self._running.extend(admitted)
        self._step(Batch(first, tokens, np.zeros_like(fresh), fresh), admitted)

    def _decode(self) -> None:
        tokens = np.array([[one.tokens[-1]] for one in self._running], np.int64)
        past = np.array([one.cached for one in self._running], np.int64)
        self._step(Batch(0, tokens, past, np.ones_like(past)), self._running)

    def _step(self, batch: Batch, generations: Sequence[Generation]) -> None:
        """Run one batch and hand out its tokens.

        While there is work one step begins where the last one ended: what lies between two batches (choosing tokens,
        admitting requests, telling of the last step) holds up the requests as much as the batch itself.
        """
        self._ports.observer.open()
        shape, served = self._shape(batch), tuple(generations)
        logits = self._ports.backend.forward(batch)
        chosen: list[int] = _greedy(logits)
        now_ns = self._ports.clock.now_ns()
        events = [
            self._accept(one, token, int(fresh), now_ns)
            for one, token, fresh in zip(generations, chosen, batch.fresh, strict=True)
            if not one.done
        ]
        # Rows are free before anyone hears of it: who asks again at once must find one.
        self._retire()
        self._ports.observer.close(shape, served, go_on=bool(self._running))
        if events:
            self._ports.deliver(events)

    def _shape(self, batch: Batch) -> Step:
        decoding = batch.tokens.shape[1] == 1 and bool(batch.past.all())
        fresh, past = int(batch.fresh.sum()), int(batch.past.sum())
        return Step(
            batch_size=len(batch.past),
            prefill_tokens=0 if decoding else fresh,
            decode_tokens=fresh if decoding else 0,
            context_tokens=past,
            kv_used_ratio=self.kv_used_ratio,
        )

    def _accept(self, one: Generation, token: int, fresh: int, now_ns: int) -> Event:
        one.cached += fresh
        one.tokens.append(token)
        one.first_token_ns = one.first_token_ns or now_ns
        one.last_token_ns = now_ns
        finish = ""
        if one.stop_at_eos and token == EOS:
            finish = "stop"
        elif len(one.tokens) >= one.max_tokens:
            finish = "length"
        one.done = bool(finish)
        return Event(one, token, finish)

    def _retire(self) -> None:
        """Free the rows of finished requests, keeping the rows in use adjacent."""
        if self._ports.policy.keeps_batch:
            if all(one.done for one in self._running):
                self._running.clear()
            return
        for row in range(len(self._running) - 1, -1, -1):
            if self._running[row].done:
                last = self._running.pop()
                if row < len(self._running):
                    self._ports.backend.move(len(self._running), row, last.cached)
                    self._running[row] = last


def _greedy(logits: NDArray[np.float32]) -> list[int]:
    chosen: list[int] = logits.argmax(axis=1).tolist()
    return chosen
