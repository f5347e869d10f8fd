"""Memory of the host and its major page faults.

Source: proc_meminfo(5), /proc/vmstat; names of OpenTelemetry's system metrics.
"""

from typing import ClassVar

from agent.collectors import procfs
from agent.collectors.base import CollectorContext
from agent.telemetry.keys import MEMORY_STATE
from agent.telemetry.model import Sample

_BYTES_PER_KB = 1024
_CACHED = ("Cached", "SReclaimable")  # `free` counts reclaimable slab as cache too


class MemoryCollector:
    """Reads the host's memory."""

    METRICS: ClassVar[tuple[str, ...]] = (
        "system.memory.usage",
        "system.memory.limit",
        "system.memory.available",
        "system.paging.faults.major",
    )

    def __init__(self, context: CollectorContext) -> None:
        self._context = context
        self._boot_unix_ns: int | None = None

    def collect(self) -> list[Sample]:
        """Return the bytes by state, the installed and the available bytes, the major faults."""
        kilobytes = procfs.keyed(procfs.read(self._context.paths, "meminfo"))
        faults = procfs.keyed(procfs.read(self._context.paths, "vmstat")).get("pgmajfault")
        if self._boot_unix_ns is None:
            self._boot_unix_ns = procfs.boot_unix_ns(self._context.paths)
        now = self._context.now_unix_ns()
        samples = [
            Sample("system.memory.usage", amount * _BYTES_PER_KB, now, {MEMORY_STATE: state})
            for state, amount in _states(kilobytes).items()
        ]
        for metric, key in (
            ("system.memory.limit", "MemTotal"),
            ("system.memory.available", "MemAvailable"),
        ):
            if key in kilobytes:
                samples.append(Sample(metric, kilobytes[key] * _BYTES_PER_KB, now))
        if faults is not None:
            start = self._boot_unix_ns
            samples.append(Sample("system.paging.faults.major", faults, now, {}, start))
        return samples


def _states(kilobytes: dict[str, int]) -> dict[str, int]:
    """Return states that add up to the installed memory."""
    free, buffers = kilobytes["MemFree"], kilobytes["Buffers"]
    cached = sum(kilobytes.get(key, 0) for key in _CACHED)
    used = kilobytes["MemTotal"] - free - buffers - cached
    return {"used": max(0, used), "free": free, "buffers": buffers, "cached": cached}
