"""What the agent costs and loses itself."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.host.files import read_text
from agent.host.paths import DEFAULT_PROCFS
from agent.otlp.sender import Sender
from agent.telemetry.keys import CPU_MODE, PIPE, REASON
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
            samples.append(
                self._counter("tailcause.pipe.items", sender.stats.sent, {PIPE: pipe}, now)
            )
            for reason, count in sender.stats.dropped.items():
                keys = {PIPE: pipe, REASON: reason}
                samples.append(self._counter("tailcause.pipe.dropped", count, keys, now))
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
