"""A thread for the calls of one device, which may hang and cannot be stopped."""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
_STOP_S = 1.0


class Answer(Generic[T]):
    """What a job came to: its result or its exception."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None

    def settle(self, job: Callable[[], T]) -> None:
        """Run the job and keep what it comes to."""
        try:
            self._result = job()
        except BaseException as exc:  # noqa: BLE001  handed over whole to whoever waits
            self._error = exc
        self._done.set()

    def wait(self, until_s: float) -> bool:
        """Wait until the monotonic clock reaches `until_s`; tell whether the job is done."""
        return self._done.wait(max(0.0, until_s - time.monotonic()))

    def result(self) -> T:
        """Return the result of a job that is done, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # done without an error: it is there


@dataclass(frozen=True)
class _Job(Generic[T]):
    answer: Answer[T]
    call: Callable[[], T]


class DeviceWorker(Generic[T]):
    """Runs one job at a time on a daemon thread, which cannot hold up the exit."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job[T] | Callable[[], object]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: Answer[T] | None = None

    @property
    def busy(self) -> bool:
        """Tell whether the last job has not come back."""
        return self._last is not None and not self._last.wait(0.0)

    def start(self, job: Callable[[], T]) -> Answer[T]:
        """Begin a job; only when the worker is not busy."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._last = answer = Answer[T]()
        self._jobs.put(_Job(answer, job))
        return answer

    def stop(self, last: Callable[[], object]) -> None:
        """Let the thread do one last thing and end, once its job has come back; wait for it if that has."""
        if self._thread is None:
            return
        busy = self.busy
        self._jobs.put(last)
        if not busy:
            self._thread.join(_STOP_S)
        self._thread = None

    def _work(self) -> None:
        while isinstance(item := self._jobs.get(), _Job):
            item.answer.settle(item.call)
        item()
