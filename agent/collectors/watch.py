"""The wrapper that owns a collector's timing, deadline, state, age and failures."""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace

from agent.collectors.base import Collector, NoData
from agent.telemetry.keys import SIGNAL, SIGNAL_STATE
from agent.telemetry.model import Sample, SignalState

_log = logging.getLogger(__name__)

_Job = tuple[Future[list[Sample]], Callable[[], list[Sample]]]
_CLOSE_S = 5.0
_HUNG_REMEDY = "the source does not answer; the other signals go on and this one is tried again"


@dataclass(frozen=True)
class SignalStatus:
    """How a signal fares: its state and, where it is not ok, why and what to do."""

    state: SignalState
    reason: str = ""
    remedy: str = ""
    duration_s: float = 0.0
    failures: int = 0
    last_value_s: float | None = None
    """When the last value came, on the monotonic clock."""


class Watch:
    """Calls one collector on a thread of its own and gives up waiting at the deadline.

    A call that hangs cannot be stopped; the thread is a daemon, and until the call comes back the
    signal is `hung` and is not called again.
    """

    def __init__(
        self,
        name: str,
        collector: Collector,
        deadline_s: float,
        monotonic_s: Callable[[], float] = time.monotonic,
        now_unix_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.name = name
        self._collector = collector
        self.deadline_s = deadline_s
        self._monotonic_s = monotonic_s
        self._now_unix_ns = now_unix_ns
        self._start_unix_ns = now_unix_ns()
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._running: Future[list[Sample]] | None = None
        self._settled = False
        self.status = SignalStatus(SignalState.DISABLED, "not collected yet")

    async def collect(self) -> list[Sample]:
        """Return the collector's samples, none if it has none now; `status` tells which."""
        if self._running is not None and not self._running.done():
            self._turn(SignalState.HUNG, "a call has not come back", _HUNG_REMEDY, failed=True)
            return []
        begun_s = self._monotonic_s()
        self._running = self._submit(self._collector.collect)
        waiting = asyncio.wrap_future(self._running)
        done, _ = await asyncio.wait({waiting}, timeout=self.deadline_s)
        self.status = replace(self.status, duration_s=self._monotonic_s() - begun_s)
        if not done:
            waiting.cancel()
            reason = f"no answer within {self.deadline_s:g} s"
            self._turn(SignalState.HUNG, reason, _HUNG_REMEDY, failed=True)
            return []
        samples = self._settle(waiting)
        if samples:
            self.status = replace(self.status, last_value_s=self._monotonic_s())
        return samples

    async def close(self) -> None:
        """Let the collector go, if it holds anything; one that hangs is left behind."""
        call = getattr(self._collector, "close", None)
        if call is None or self._thread is None:
            return
        closing = asyncio.wrap_future(self._submit(lambda: call() or []))
        done, _ = await asyncio.wait({closing}, timeout=_CLOSE_S)
        if not done:
            closing.cancel()
            _log.warning("event=signal_not_closed signal=%s", self.name)
        elif closing.exception() is not None:
            _log.warning(
                "event=signal_not_closed signal=%s reason=%r", self.name, str(closing.exception())
            )

    def _submit(self, call: Callable[[], list[Sample]]) -> Future[list[Sample]]:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, name=f"collect-{self.name}", daemon=True
            )
            self._thread.start()
        job: Future[list[Sample]] = Future()
        job.set_running_or_notify_cancel()
        self._jobs.put((job, call))
        return job

    def _work(self) -> None:
        while True:
            job, call = self._jobs.get()
            try:
                samples = call()
            except BaseException as exc:  # noqa: BLE001  handed over whole to whoever waits
                job.set_exception(exc)
            else:
                job.set_result(samples)

    def _settle(self, waiting: "asyncio.Future[list[Sample]]") -> list[Sample]:
        try:
            samples = waiting.result()
        except NoData as exc:
            self._turn(exc.state, exc.reason, exc.remedy)
            return list(exc.samples)
        except PermissionError as exc:
            self._turn(SignalState.NO_PERMISSION, str(exc), "run the agent as root")
            return []
        except Exception as exc:  # noqa: BLE001  the boundary: one bad collector stops no other
            self._turn(SignalState.FAILED, f"{type(exc).__name__}: {exc}", failed=True)
            return []
        self._turn(SignalState.OK)
        return samples

    def _turn(
        self, state: SignalState, reason: str = "", remedy: str = "", *, failed: bool = False
    ) -> None:
        self._settled = True
        before = self.status
        if state is not before.state:
            level = logging.WARNING if failed else logging.DEBUG
            text = "event=signal_state signal=%s state=%s reason=%r"
            _log.log(level, text, self.name, state, reason)
        failures = before.failures + failed
        self.status = replace(before, state=state, reason=reason, remedy=remedy, failures=failures)

    def own_samples(self) -> list[Sample]:
        """Return the samples that say how the signal fares."""
        now, status = self._now_unix_ns(), self.status
        if not self._settled:
            return []  # no call has come back yet: there is no state to tell
        key = {SIGNAL: self.name}
        samples = [
            Sample("tailcause.signal.state", 1.0, now, {**key, SIGNAL_STATE: str(status.state)}),
            Sample("tailcause.signal.collect.duration", status.duration_s, now, key),
            Sample("tailcause.signal.failures", status.failures, now, key, self._start_unix_ns),
        ]
        if status.last_value_s is not None:
            age_s = max(0.0, self._monotonic_s() - status.last_value_s)
            samples.append(Sample("tailcause.signal.age", age_s, now, key))
        return samples
