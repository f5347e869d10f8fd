"""What the agent costs and loses itself."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.host.files import read_text
from agent.host.paths import DEFAULT_PROCFS
from agent.otlp.sender import Sender
from agent.otlp.spool import Spool
from agent.telemetry.keys import CPU_MODE, OTLP_SIGNAL, PIPE, REASON
from agent.telemetry.model import Sample

_STATM_RESIDENT = 1


@dataclass(frozen=True)
class SelfMetrics:
    """A source of the agent's own samples; `senders` are told apart by the name of their pipe."""

    senders: Mapping[str, Sender]
    started_unix_ns: int
    now_unix_ns: Callable[[], int] = time.time_ns

    def __call__(self) -> list[Sample]:
        """Return CPU time, resident memory, and what went through and was lost in each pipe."""
        now = self.now_unix_ns()
        samples = [self._counter("process.cpu.time", s, {CPU_MODE: m}, now) for m, s in _cpu_s()]
        samples.append(Sample("process.memory.usage", resident_bytes(), now))
        for pipe, sender in self.senders.items():
            samples += self._of_sender(pipe, sender, now)
        return samples

    def _of_sender(self, pipe: str, sender: Sender, now: int) -> list[Sample]:
        stats, key = sender.stats, {PIPE: pipe}
        samples = [
            self._counter("tailcause.pipe.items", stats.sent, key, now),
            self._counter("tailcause.pipe.retries", stats.retries, key, now),
            Sample("tailcause.pipe.queue.length", sender.queued_items, now, key),
        ]
        for (signal, reason), count in stats.losses.items():
            keys = {**key, REASON: reason, OTLP_SIGNAL: str(signal)}
            samples.append(self._counter("tailcause.pipe.dropped", count, keys, now))
        if sender.spool is not None:
            samples += self._of_spool(key, sender.spool, now)
        return samples

    def _of_spool(self, key: dict[str, str], spool: Spool, now: int) -> list[Sample]:
        samples = [
            Sample("tailcause.spool.available", float(not spool.off), now, key),
            Sample("tailcause.spool.size", spool.size_bytes, now, key),
        ]
        for signal, count in spool.items.items():
            keys = {**key, OTLP_SIGNAL: str(signal)}
            samples.append(Sample("tailcause.spool.items", count, now, keys))
        for reason, count in spool.write_failures.items():
            keys = {**key, REASON: reason}
            samples.append(self._counter("tailcause.spool.write.failures", count, keys, now))
        return samples

    def _counter(self, metric: str, value: float, keys: dict[str, str], now: int) -> Sample:
        return Sample(metric, value, now, keys, self.started_unix_ns)


def _cpu_s() -> tuple[tuple[str, float], ...]:
    times = os.times()
    return (("user", times.user), ("system", times.system))


def resident_bytes() -> int:
    """Return this process's resident memory; it reads its own procfs, not the host's."""
    pages = int(read_text(DEFAULT_PROCFS / "self" / "statm").split()[_STATM_RESIDENT])
    return pages * os.sysconf("SC_PAGE_SIZE")
