"""Demand `surge`: more requests of the same kind than the server can answer at ease."""

import os
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from kernels.faults.base import FaultContext, FaultError, FaultKind, Injection, interpolate
from kernels.supervisor.actions import KillProcess
from kernels.supervisor.processes import spawn, start_ticks

MEASURE_S = 3.0
_COUNTER = "vllm:e2e_request_latency_seconds_count"

EXTRA_CORES = ((1.5, 0.78), (3.0, 1.02), (6.0, 1.2))
"""(P99 factor, cores that the extra requests would take at the present cost of a request).

Measured at 20 requests/s on 0.41 cores. Grown batches make requests cheaper, so that the single
engine thread carries more than one core's worth of today's requests.
"""


@dataclass(frozen=True)
class SurgeFault:
    """Starts a second load generator beside the one that runs."""

    name: str = "surge"
    kind: FaultKind = FaultKind.DEMAND
    description: str = "a second load generator multiplies the request rate"
    variants: tuple[str, ...] = ()

    def inject(self, context: FaultContext) -> Injection:
        """Measure the request rate that is there, then add to it."""
        rate, cores = _measure(context)
        extra = rate / cores * interpolate(EXTRA_CORES, context.options.intensity)
        process = spawn(
            [
                *(sys.executable, "-m", "kernels.cli", "load", "--json"),
                *("--url", context.url, "--rate", f"{extra:.2f}", "--duration", "24h"),
                *("--seed", str(context.rng(self.name).randrange(1 << 30))),
            ]
        )
        context.reaper.add(KillProcess(process.pid, start_ticks(process.pid) or 0))
        return Injection(
            target=context.workload.service,
            parameters={
                "rate_before": round(rate, 2),
                "cores_before": round(cores, 3),
                "extra_rate": round(extra, 2),
            },
            processes=(process,),
        )


def _measure(context: FaultContext) -> tuple[float, float]:
    """Measure the requests per second that the server answers now, and the cores it takes."""
    pid = context.workload.server_pid
    started, count, used = time.monotonic(), _answered(context.url), _cpu_s(pid)
    context.pause(MEASURE_S)
    elapsed_s = time.monotonic() - started
    rate = (_answered(context.url) - count) / elapsed_s
    cores = (_cpu_s(pid) - used) / elapsed_s
    if rate <= 0 or cores <= 0:
        raise FaultError("the workload is idle: start `tailcause-workload load` first")
    return rate, cores


def _cpu_s(pid: int) -> float:
    """Read the CPU time of a process, user and system, from fields 14 and 15 of proc(5) stat."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError as exc:
        raise FaultError("the server has just been replaced or ended: try again") from exc
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _answered(url: str) -> float:
    """Read the server's count of answered requests, all labels together."""
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=5) as response:  # noqa: S310 - ours
            lines = response.read().decode().splitlines()
    except (OSError, urllib.error.URLError, ValueError) as exc:
        raise FaultError(f"no workload answers at {url}: {exc}; give its --url") from exc
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(_COUNTER))
