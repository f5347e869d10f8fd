"""Memory of the host, its page faults and its swap.

Source: proc_meminfo(5), /proc/vmstat; names of OpenTelemetry's system metrics.
"""

from collections.abc import Iterator
from typing import ClassVar

from agent.collectors import procfs
from agent.collectors.base import CollectorContext
from agent.telemetry.keys import FAULT_TYPE, MEMORY_STATE, PAGING_DIRECTION, PAGING_STATE
from agent.telemetry.model import Sample

_BYTES_PER_KB = 1024
_CACHED = ("Cached", "SReclaimable")  # `free` counts reclaimable slab as cache too


class MemoryCollector:
    """Reads the host's memory."""

    METRICS: ClassVar[tuple[str, ...]] = (
        "system.memory.usage",
        "system.memory.limit",
        "system.memory.linux.available",
        "system.paging.usage",
        "system.paging.faults",
        "system.paging.operations",
    )

    def __init__(self, context: CollectorContext) -> None:
        self._context = context
        self._boot_unix_ns: int | None = None

    def collect(self) -> list[Sample]:
        """Return the bytes by state, the installed and the available bytes, swap, page faults."""
        kilobytes = procfs.keyed(procfs.read(self._context.paths, "meminfo"))
        counters = procfs.keyed(procfs.read(self._context.paths, "vmstat"))
        if self._boot_unix_ns is None:
            self._boot_unix_ns = procfs.boot_unix_ns(self._context.paths)
        now, start = self._context.now_unix_ns(), self._boot_unix_ns
        samples = [
            Sample("system.memory.usage", amount * _BYTES_PER_KB, now, {MEMORY_STATE: state})
            for state, amount in _states(kilobytes).items()
        ]
        for metric, key in (
            ("system.memory.limit", "MemTotal"),
            ("system.memory.linux.available", "MemAvailable"),
        ):
            if key in kilobytes:
                samples.append(Sample(metric, kilobytes[key] * _BYTES_PER_KB, now))
        for state, amount in _swap(kilobytes).items():
            keys = {PAGING_STATE: state}
            samples.append(Sample("system.paging.usage", amount * _BYTES_PER_KB, now, keys))
        for metric, attribute, value, count in _paging(counters):
            samples.append(Sample(metric, count, now, {attribute: value}, start))
        return samples


def _states(kilobytes: dict[str, int]) -> dict[str, int]:
    """Return states that add up to the installed memory."""
    free, buffers = kilobytes["MemFree"], kilobytes["Buffers"]
    cached = sum(kilobytes.get(key, 0) for key in _CACHED)
    used = kilobytes["MemTotal"] - free - buffers - cached
    return {"used": max(0, used), "free": free, "buffers": buffers, "cached": cached}


def _swap(kilobytes: dict[str, int]) -> dict[str, int]:
    """Return the swap space by state, nothing where there is none."""
    total, free = kilobytes.get("SwapTotal", 0), kilobytes.get("SwapFree", 0)
    return {"used": total - free, "free": free} if total else {}


def _paging(counters: dict[str, int]) -> Iterator[tuple[str, str, str, int]]:
    """Yield metric, attribute, its value and the count; the kernel counts major faults among all."""
    if "pgmajfault" in counters:
        major = counters["pgmajfault"]
        yield "system.paging.faults", FAULT_TYPE, "major", major
        if "pgfault" in counters:
            yield "system.paging.faults", FAULT_TYPE, "minor", max(0, counters["pgfault"] - major)
    for direction in ("in", "out"):
        if (name := f"pswp{direction}") in counters:
            yield "system.paging.operations", PAGING_DIRECTION, direction, counters[name]
