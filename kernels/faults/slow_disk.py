"""Fault `slow-disk`: the disk gives the server's cgroup little more than it reads on average."""

import time
from dataclasses import dataclass
from pathlib import Path

from kernels.errors import WorkloadError
from kernels.faults.base import FaultContext, FaultError, FaultKind, Injection, interpolate
from kernels.supervisor.actions import WriteFile
from kernels.supervisor.diskio import DiskGroup, disk_under

MEASURE_S = 3.0
_IDLE_BYTES_PER_S = 64 << 10

HEADROOM = ((1.5, 2.0), (3.0, 1.3), (6.0, 1.1))
"""(P99 factor, limit as a multiple of the bytes read a second before), measured at 20 requests/s."""


@dataclass(frozen=True)
class SlowDiskFault:
    """Limits the bytes that the server may read from the disk under its adapters.

    Only reads that reach the disk are slowed: the server must read past the page cache.
    """

    name: str = "slow-disk"
    kind: FaultKind = FaultKind.FAULT
    description: str = "the disk gives the server's cgroup few bytes a second (needs root)"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ("--set", "adapters=64", "--set", "adapter_direct=on")

    def inject(self, context: FaultContext) -> Injection:
        """Measure what the server reads, then set the limit."""
        cgroup = context.workload_cgroup()
        folder = _adapters_of(context.servers()[0].pid)
        disk = disk_under(folder)
        group = DiskGroup(cgroup, disk)
        rate = _measure(context)
        if rate < _IDLE_BYTES_PER_S:
            raise FaultError(
                "the server reads next to nothing from the disk: start `up --set adapters=64 "
                "--set adapter_direct=on` and some load first"
            )
        limit = round(rate * interpolate(HEADROOM, context.options.intensity))
        context.reaper.add(WriteFile(str(group.limit_file), group.no_limit_text))
        group.set_read_limit(limit)
        return Injection(
            target=cgroup.path,
            parameters={
                "disk": disk,
                "read_bytes_per_s": limit,
                "read_bytes_per_s_before": round(rate),
            },
        )


def _measure(context: FaultContext) -> float:
    """Bytes a second that the servers fetch from storage; v1's own counters run only under a limit."""
    started, read = time.monotonic(), _read_bytes(context)
    context.pause(MEASURE_S)
    return (_read_bytes(context) - read) / (time.monotonic() - started)


def _read_bytes(context: FaultContext) -> int:
    """Read `read_bytes` of proc(5) io, summed over the servers."""
    try:
        texts = [Path(f"/proc/{server.pid}/io").read_text() for server in context.servers()]
    except OSError as exc:
        raise FaultError("the server has just been replaced or ended: try again") from exc
    lines = [line for text in texts for line in text.splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


def _adapters_of(pid: int) -> Path:
    """Find the folder of adapters that the server keeps open."""
    try:
        links = [entry.readlink() for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError as exc:
        raise WorkloadError("the server has just been replaced or ended: try again") from exc
    for link in links:
        if link.name.startswith("adapters-"):
            return link
    raise FaultError("the server reads no adapters: start `up --set adapters=64`")
