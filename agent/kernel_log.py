"""Forwards what the kernel's log says that matters, as OTLP logs, and counts it."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent.host.kernel_events import KernelEvents
from agent.host.kmsg import KMSG, KernelLog, KernelRecord
from agent.otlp.codec import Signal
from agent.otlp.logs import encode_logs
from agent.otlp.sender import Sender
from agent.telemetry.keys import EVENT_NAME, PIPE, REASON, SIGNAL, SIGNAL_STATE
from agent.telemetry.log import LogRecord
from agent.telemetry.model import Attributes, Sample, SignalState

_log = logging.getLogger(__name__)

NAME = "kernel_log"
PER_MINUTE = 100
_INTERVAL_S = 1.0
_REOPEN_S = 60.0
_MOST_AT_ONCE = 1000
_OLDEST_NS = 2_000_000_000


@dataclass(frozen=True)
class KernelLogSettings:
    """Whether it is read, where it lies, and how many lines a minute are forwarded at most."""

    enabled: bool = True
    path: Path = KMSG
    per_minute: int = PER_MINUTE


class KernelLogForwarder:
    """Reads the log once a second. Without a sender it only counts."""

    def __init__(
        self,
        settings: KernelLogSettings,
        sender: Sender | None,
        resource: Attributes,
        now_unix_ns: Callable[[], int] = time.time_ns,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self.sender = sender
        self._resource = resource
        self._now_unix_ns = now_unix_ns
        self._monotonic_s = monotonic_s
        self._started_unix_ns = now_unix_ns()
        self._events = KernelEvents()
        self._source: KernelLog | None = None
        self._last_sequence: int | None = None
        self._allowed = float(settings.per_minute)
        self._refilled_s = monotonic_s()
        self.seen: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.state = SignalState.DISABLED

    async def run(self) -> None:
        """Read until cancelled; a log that cannot be opened is tried again each minute."""
        try:
            while self._settings.enabled:
                if self._source is None and not self._open():
                    await asyncio.sleep(_REOPEN_S)
                    continue
                more = self.step()
                await asyncio.sleep(0 if more else _INTERVAL_S)
        finally:
            self.close()

    def _open(self) -> bool:
        try:
            self._source = KernelLog(self._settings.path)
        except PermissionError as exc:
            self._turn(SignalState.NO_PERMISSION, str(exc))
        except OSError as exc:
            self._turn(SignalState.NOT_SUPPORTED, str(exc))
        else:
            self._turn(SignalState.OK)
        return self._source is not None

    def _turn(self, state: SignalState, why: str = "") -> None:
        if state is not self.state:
            _log.info("event=signal_state signal=%s state=%s reason=%r", NAME, state, why)
        self.state = state

    def step(self) -> bool:
        """Read what has come and forward what matters; True where there is more."""
        if self._source is None:
            return False
        try:
            records = self._source.read(_MOST_AT_ONCE)
        except OSError as exc:
            self._turn(SignalState.FAILED, str(exc))
            self.close()
            return False
        self._forward(records)
        return len(records) == _MOST_AT_ONCE

    def _forward(self, records: list[KernelRecord]) -> None:
        wanted = [found for record in records if (found := self._record(record)) is not None]
        if wanted and self.sender is not None:
            body = encode_logs(wanted, self._resource)
            self.sender.offer(Signal.LOGS, body, len(wanted))

    def _record(self, record: KernelRecord) -> LogRecord | None:
        if self._last_sequence is not None and record.sequence > self._last_sequence + 1:
            self.dropped["overrun"] += record.sequence - self._last_sequence - 1
        self._last_sequence = record.sequence
        event = self._events.recognise(record)
        if event is None:
            return None
        self.seen[event.name] += 1
        if self.sender is None or not self._may_pass():
            return None
        now = self._now_unix_ns()
        at = now - int(self._monotonic_s() * 1e9) + record.time_us * 1000
        return LogRecord(
            event.name,
            event.severity,
            event.body,
            min(now, max(at, now - _OLDEST_NS)),  # the log's clock drifts, over months
            now,
            event.attributes,
        )

    def _may_pass(self) -> bool:
        """Take one of the lines that may be forwarded; they come back evenly over a minute."""
        now_s, most = self._monotonic_s(), float(self._settings.per_minute)
        self._allowed = min(most, self._allowed + (now_s - self._refilled_s) * most / 60)
        self._refilled_s = now_s
        if self._allowed < 1:
            self.dropped["rate"] += 1
            return False
        self._allowed -= 1
        return True

    def close(self) -> None:
        """Let the log go."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def own_samples(self) -> list[Sample]:
        """Return the state, what was seen, and what was not forwarded."""
        now = self._now_unix_ns()
        key = {SIGNAL: NAME, SIGNAL_STATE: str(self.state)}
        samples = [Sample("tailcause.signal.state", 1.0, now, key)]
        for name, count in self.seen.items():
            samples.append(self._counter("tailcause.kernel_log.events", count, {EVENT_NAME: name}))
        for reason, count in self.dropped.items():
            keys = {PIPE: NAME, REASON: reason}
            samples.append(self._counter("tailcause.pipe.dropped", count, keys))
        return samples

    def _counter(self, metric: str, count: int, keys: Attributes) -> Sample:
        return Sample(metric, count, self._now_unix_ns(), keys, self._started_unix_ns)
