"""CPU time of the host by mode, CPUs online, load average.

Source: proc_stat(5), proc_loadavg(5); names of OpenTelemetry's system metrics.
"""

import os
from typing import ClassVar

from agent.collectors import procfs
from agent.collectors.base import CollectorContext
from agent.telemetry.keys import CPU_MODE
from agent.telemetry.model import Sample

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
        "system.cpu.logical.count",
        "system.cpu.load_average.1m",
    )

    def __init__(self, context: CollectorContext) -> None:
        self._context = context
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._boot_unix_ns: int | None = None

    def collect(self) -> list[Sample]:
        """Return the seconds by mode, the number of CPUs and the load."""
        text = procfs.read(self._context.paths, "stat")
        load = procfs.read(self._context.paths, "loadavg")
        if self._boot_unix_ns is None:
            self._boot_unix_ns = procfs.boot_unix_ns(self._context.paths)
        now = self._context.now_unix_ns()
        lines = text.splitlines()
        cpus = sum(1 for line in lines if line.startswith("cpu") and line[3:4].isdigit())
        return [
            *self._times(lines[0], now, self._boot_unix_ns),
            Sample("system.cpu.logical.count", cpus, now),
            Sample("system.cpu.load_average.1m", float(load.split()[0]), now),
        ]

    def _times(self, line: str, now: int, start: int) -> list[Sample]:
        ticks = dict(zip(_COLUMNS, map(int, line.split()[1:]), strict=False))
        return [
            Sample(
                "system.cpu.time",
                sum(ticks[column] for column in columns) / self._ticks_per_s,
                now,
                {CPU_MODE: mode},
                start,
            )
            for mode, columns in _MODES.items()
            if all(column in ticks for column in columns)
        ]
