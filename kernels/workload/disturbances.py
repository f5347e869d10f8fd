"""What can be done to a server from inside, for real: a held lock, a collector at work, a slow runtime."""

import gc
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kernels.workload.backend import Backend, Batch
from kernels.workload.hook_requests import CollectGarbage, HoldLock

_CHUNK = 20_000
"""Objects made in one go: between two goes other threads get the interpreter."""


class Disturbance(Protocol):
    """Something that is wrong from `start` to `stop`; both may block."""

    def start(self) -> None:
        """Put it in force."""

    def stop(self) -> None:
        """Take it back, completely."""


class Pace:
    """How a runtime's steps are slowed; shared by the runtime and the disturbances."""

    def __init__(self) -> None:
        self.factor = 1.0
        self.running = threading.Event()
        self.running.set()


class PacedBackend:
    """A runtime whose steps can be made slower: the thread that waits for them sleeps, as it does for a device."""

    def __init__(self, backend: Backend, pace: Pace) -> None:
        self._backend = backend
        self._pace = pace

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Run the batch, then wait as long as the pace says."""
        started = time.perf_counter()
        logits = self._backend.forward(batch)
        late_s = (self._pace.factor - 1.0) * (time.perf_counter() - started)
        if late_s > 0:
            time.sleep(late_s)
        self._pace.running.wait()
        return logits

    def move(self, source: int, target: int, length: int) -> None:
        """Move a row, at full speed."""
        self._backend.move(source, target, length)

    def save(self, row: int, start: int, block: int) -> None:
        """Save a block, at full speed."""
        self._backend.save(row, start, block)

    def load(self, row: int, blocks: Sequence[int], held: int) -> None:
        """Load blocks, at full speed."""
        self._backend.load(row, blocks, held)


class Slow:
    """Steps take a multiple of their time."""

    def __init__(self, pace: Pace, factor: float) -> None:
        self._pace = pace
        self._factor = factor

    def start(self) -> None:
        """Slow the next steps down."""
        self._pace.factor = self._factor

    def stop(self) -> None:
        """Let them run at their own speed."""
        self._pace.factor = 1.0


class Stall:
    """No step ends."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def start(self) -> None:
        """Stop the step that runs at its end."""
        self._pace.running.clear()

    def stop(self) -> None:
        """Let it go on."""
        self._pace.running.set()


class _Repeated:
    """A thread that does something again and again until it is stopped."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="disturbance", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _main(self) -> None:
        while not self._over.wait(self._pause_s):
            self._once()

    def _once(self) -> None:
        raise NotImplementedError


class LockHolder(_Repeated):
    """Holds the lock that everybody who asks the engine for something needs, and the engine itself."""

    def __init__(self, lock: AbstractContextManager[object], request: HoldLock) -> None:
        super().__init__(request.pause_s)
        self._lock = lock
        self._hold_s = request.hold_s

    def _once(self) -> None:
        with self._lock:
            time.sleep(self._hold_s)


class Collector(_Repeated):
    """Has the collector go over a heap of cyclic objects, which holds the interpreter all the while."""

    def __init__(self, request: CollectGarbage) -> None:
        super().__init__(request.pause_s)
        self._objects = request.objects
        self._heap: list[list[object]] = []

    def start(self) -> None:
        """Fill the heap in pieces, then begin."""
        while len(self._heap) < self._objects:
            self._heap.extend(map(_cyclic, range(min(_CHUNK, self._objects - len(self._heap)))))
            time.sleep(0)
        super().start()

    def stop(self) -> None:
        """End, and give the memory back."""
        super().stop()
        self._heap.clear()
        gc.collect()

    def _once(self) -> None:
        gc.collect()


def _cyclic(_: int) -> list[object]:
    made: list[object] = []
    made.append(made)
    return made
