"""The engine: one thread that turns waiting requests into tokens, step by step."""

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from kernels.errors import WorkloadError
from kernels.workload.backend import Backend
from kernels.workload.clock import Clock
from kernels.workload.generation import Call, Event, Generation, Step
from kernels.workload.kv_blocks import BLOCK_TOKENS, KvBlocks
from kernels.workload.kv_memory import KvMemory
from kernels.workload.planner import Limits, Plan, Planner
from kernels.workload.rows import Rows
from kernels.workload.scheduler import Load, Policy
from kernels.workload.stepper import Stepper
from kernels.workload.waiting import Waiting

log = logging.getLogger(__name__)


class QueueFullError(WorkloadError):
    """The waiting queue is full; try again later."""


class StoppedError(WorkloadError):
    """The engine takes no more requests."""


class TooLongError(WorkloadError):
    """The request could come to need more KV than there is."""


class StepObserver(Protocol):
    """Whoever wants to see the steps; called in the engine's thread."""

    def open(self) -> None:
        """Begin a step; harmless when one has begun."""

    def close(self, step: Step, *, go_on: bool) -> None:
        """End the step that has begun, saying what was in it; with `go_on` the next one begins at the same moment."""

    def drop(self) -> None:
        """Forget a step that has begun; harmless without one."""


@dataclass(frozen=True)
class Ports:
    """The engine's outside: the runtime, the policy, the clock and who listens."""

    backend: Backend
    policy: Policy
    clock: Clock
    observer: StepObserver
    count: Callable[[Step], None]
    deliver: Callable[[Sequence[Event]], None]
    failed: Callable[[], None]


class Engine:
    """Greedy decoding of many requests on one thread; `submit` and `cancel` from any other."""

    def __init__(self, ports: Ports, limits: Limits) -> None:
        self._ports = ports
        self._limits = limits
        self._changed = threading.Condition()
        self._waiting = Waiting(limits.prefill_order)
        self._numbers = itertools.count(1)
        self._rows = Rows(ports.backend.move)
        blocks = KvBlocks(limits.kv_tokens // BLOCK_TOKENS, keeps=limits.prefix_cache)
        self._kv = KvMemory(blocks, ports.backend)
        self._planner = Planner(limits, ports.policy, self._rows, self._kv)
        self._stepper = Stepper(ports.backend, ports.clock, self._rows, self._kv)
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
        """Queue a request. Raises QueueFullError, StoppedError or TooLongError."""
        if generation.most_tokens > self._kv.tokens:
            raise TooLongError(f"the KV cache holds {self._kv.tokens} tokens")
        with self._changed:
            if self._stopping:
                raise StoppedError("the server is shutting down")
            if len(self._waiting) >= self._limits.max_queue + self._idle_rows():
                raise QueueFullError("the queue is full, try again later")
            generation.submitted_ns = self._ports.clock.now_ns()
            generation.number = next(self._numbers)
            self._waiting.add(generation)
            self._changed.notify()

    def cancel(self, generation: Generation) -> None:
        """Forget a request whose client has gone; nothing happens when it is finished."""
        with self._changed:
            generation.cancelled = True
            self._changed.notify()

    @property
    def lock(self) -> AbstractContextManager[object]:
        """What the engine's thread and whoever submits or cancels take turns with."""
        return self._changed

    @property
    def running(self) -> int:
        """Requests that hold a row."""
        return len(self._rows)

    @property
    def waiting(self) -> int:
        """Requests that wait for a row."""
        return len(self._waiting)

    @property
    def kv_tokens(self) -> int:
        """Tokens that one request can come to hold at most."""
        return self._kv.tokens

    @property
    def kv_used_ratio(self) -> float:
        """Share of the KV blocks that requests hold."""
        return self._kv.used_ratio

    def _idle_rows(self) -> int:
        """Rows that the next waiting requests take at once; a queue of 0 still serves."""
        return max(0, self._limits.max_running - len(self._rows))

    def _main(self) -> None:
        try:
            while (plan := self._next()) is not None:
                self._step(plan)
        except Exception:  # the thread's boundary: its owner must learn of any failure
            log.exception("engine failed")
            with self._changed:
                self._stopping = True
                lost = [*self._rows, *self._waiting]
            self._ports.deliver([Event(one, 0, failed=True) for one in lost])
            self._ports.failed()

    def _next(self) -> Plan | None:
        """Plan a step, sleeping while there is nothing to do; None to stop."""
        with self._changed:
            while True:
                self._drop_cancelled()
                self._planner.make_room(self._waiting)
                decision = self._ports.policy.decide(self._load())
                wanted = [self._waiting[place] for place in decision.admit]
                plan = self._planner.plan(wanted, self._waiting)
                if plan.has_work:
                    return plan
                if self._stopping and not self._waiting:
                    return None
                self._ports.observer.drop()  # asleep is not a step
                self._changed.wait(decision.ask_again_s)

    def _load(self) -> Load:
        running = len(self._rows)
        oldest_ns = min((one.submitted_ns for one in self._waiting), default=0)
        return Load(
            waiting=[one.shape for one in self._waiting],
            running=running,
            free_rows=self._limits.max_running - running,
            oldest_wait_s=(self._ports.clock.now_ns() - oldest_ns) / 1e9 if oldest_ns else 0.0,
        )

    def _drop_cancelled(self) -> None:
        self._waiting.drop_cancelled()
        for one in self._rows:
            one.done = one.done or one.cancelled
        self._stepper.retire(keeps_batch=self._ports.policy.keeps_batch)

    def _step(self, plan: Plan) -> None:
        """Run the calls of a step and hand out their tokens, those of each call before the next one begins.

        While there is work one step begins where the last one ended: what lies between two batches (choosing tokens,
        admitting requests, telling of the last step) holds up the requests as much as the batch itself.
        """
        self._ports.observer.open()
        kv_used_ratio = self.kv_used_ratio
        calls: list[Call] = []
        events: list[Event] = []
        runs: list[Callable[[], tuple[Call, list[Event]]]] = [
            *([self._stepper.decode] if plan.decode else ()),
            *(partial(self._stepper.prefill, group) for group in plan.groups),
        ]
        for run in runs:
            self._deliver(events)
            call, events = run()
            calls.append(call)
            # Rows are free before anyone hears of it: who asks again at once must find one.
            self._stepper.retire(keeps_batch=self._ports.policy.keeps_batch)
        step = Step(tuple(calls), kv_used_ratio, plan.preempted)
        self._ports.observer.close(step, go_on=bool(len(self._rows)))
        self._ports.count(step)
        self._deliver(events)

    def _deliver(self, events: Sequence[Event]) -> None:
        if events:
            self._ports.deliver(events)
