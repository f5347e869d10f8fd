"""CPU time of the host by mode and its share, CPUs online, clocks, load average.

Source: proc_stat(5), proc_loadavg(5); names of OpenTelemetry's system metrics.
"""

import os
import time
from typing import ClassVar

from agent.collectors import procfs
from agent.collectors.base import CollectorContext
from agent.host.frequency import cpu_hz
from agent.host.rarely import Rarely
from agent.telemetry.keys import CPU_MODE, CPU_NUMBER
from agent.telemetry.model import Sample

_CLOCKS_EVERY = 10  # rounds: the kernel may have to ask every CPU
# The kernel's columns; guest times are part of user and nice already.
_COLUMNS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_MODES: dict[str, tuple[str, ...]] = {
    "user": ("user",),
    "nice": ("nice",),
    "system": ("system",),
    "idle": ("idle",),
    "iowait": ("iowait",),
    "interrupt": ("irq", "softirq"),
    "steal": ("steal",),
}


class CpuCollector:
    """Reads the host's CPU counters."""

    METRICS: ClassVar[tuple[str, ...]] = (
        "system.cpu.time",
        "system.cpu.utilization",
        "system.cpu.frequency",
        "system.cpu.logical.count",
        "system.cpu.load_average.1m",
    )

    def __init__(self, context: CollectorContext) -> None:
        self._context = context
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._boot_unix_ns: int | None = None
        self._before: dict[str, int] = {}
        self._clocks: list[Sample] = []
        self._clocks_due = Rarely(_CLOCKS_EVERY)

    def collect(self) -> list[Sample]:
        """Return the seconds by mode and their share, the number of CPUs, the clocks and the load."""
        text = procfs.read(self._context.paths, "stat")
        load = procfs.read(self._context.paths, "loadavg")
        if self._boot_unix_ns is None:
            self._boot_unix_ns = procfs.boot_unix_ns(self._context.paths)
        now = self._context.now_unix_ns()
        lines = text.splitlines()
        cpus = sum(1 for line in lines if line.startswith("cpu") and line[3:4].isdigit())
        ticks = _by_mode(lines[0])
        return [
            *self._times(ticks, now, self._boot_unix_ns),
            *self._shares(ticks, now),
            *self._frequencies(),
            Sample("system.cpu.logical.count", cpus, now),
            Sample("system.cpu.load_average.1m", float(load.split()[0]), now),
        ]

    def _times(self, ticks: dict[str, int], now: int, start: int) -> list[Sample]:
        return [
            Sample("system.cpu.time", count / self._ticks_per_s, now, {CPU_MODE: mode}, start)
            for mode, count in ticks.items()
        ]

    def _shares(self, ticks: dict[str, int], now: int) -> list[Sample]:
        """Return each mode's part of the ticks since the collection before, nothing without one."""
        before, self._before = self._before, ticks
        # Idle and iowait are estimates that the kernel may take back.
        grown = {mode: max(0, ticks[mode] - before[mode]) for mode in ticks if mode in before}
        total = sum(grown.values())
        return [
            Sample("system.cpu.utilization", count / total, now, {CPU_MODE: mode})
            for mode, count in grown.items()
            if total
        ]

    def _frequencies(self) -> list[Sample]:
        if self._clocks_due.due(time.monotonic()):
            clocks, now = cpu_hz(self._context.paths), self._context.now_unix_ns()
            self._clocks = [
                Sample("system.cpu.frequency", hz, now, {CPU_NUMBER: cpu})
                for cpu, hz in sorted(clocks.items())
            ]
        return self._clocks


def _by_mode(line: str) -> dict[str, int]:
    ticks = dict(zip(_COLUMNS, map(int, line.split()[1:]), strict=False))
    return {
        mode: sum(ticks[column] for column in columns)
        for mode, columns in _MODES.items()
        if all(column in ticks for column in columns)
    }
