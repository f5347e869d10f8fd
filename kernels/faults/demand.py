"""What there is to do now, and more of it: measuring the workload, and a second load generator."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from kernels.faults.base import FaultContext, FaultError
from kernels.supervisor.actions import KillProcess
from kernels.supervisor.processes import spawn, start_ticks

MEASURE_S = 3.0
_PARTS = 6
_LATENCY = "vllm:e2e_request_latency_seconds"


@dataclass(frozen=True)
class Demand:
    """What the workload does: requests a second, cores that they take, seconds that one takes in quiet times."""

    rate: float
    cores: float
    usual_s: float

    @property
    def rate_per_core(self) -> float:
        """Requests a second that a core can answer at their present cost."""
        return self.rate / self.cores


def measure(context: FaultContext) -> Demand:
    """Measure over a few seconds; FaultError when nothing is asked."""
    pids = [server.pid for server in context.servers()]
    started, used = time.monotonic(), _cpu_s(pids)
    seen = [_answered(context)]
    for _ in range(_PARTS):
        context.pause(MEASURE_S / _PARTS)
        seen.append(_answered(context))
    elapsed_s = time.monotonic() - started
    count, cores = seen[-1][0] - seen[0][0], (_cpu_s(pids) - used) / elapsed_s
    if count <= 0 or cores <= 0:
        raise FaultError("the workload is idle: start `tailcause-workload load` first")
    return Demand(count / elapsed_s, cores, _usual_s(seen))


def _usual_s(seen: Sequence[tuple[float, float]]) -> float:
    """Median of the mean latencies of some short stretches: one slow moment does not count."""
    return median(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for earlier, later in pairwise(seen)
        if later[0] > earlier[0]
    )


def send_more(
    context: FaultContext, purpose: str, rate: float, words: Sequence[str] = ()
) -> "subprocess.Popen[bytes]":
    """Start a second load generator, recorded for its end; `words` are options of `load`."""
    process = spawn(
        [
            *(sys.executable, "-m", "kernels.cli", "load", "--json"),
            *("--url", context.url, "--rate", f"{rate:.3f}", "--duration", "24h"),
            *("--seed", str(context.rng(purpose).randrange(1 << 30))),
            *words,
        ]
    )
    context.reaper.add(KillProcess(process.pid, start_ticks(process.pid) or 0))
    return process


def _cpu_s(pids: Iterable[int]) -> float:
    """Read the CPU time of processes, user and system, from fields 14 and 15 of proc(5) stat."""
    try:
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    except OSError as exc:
        raise FaultError("the server has just been replaced or ended: try again") from exc
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")


def _answered(context: FaultContext) -> tuple[float, float]:
    """Read the servers' count of answered requests and the seconds of all of them together."""
    lines = [line for url in context.server_urls() for line in _metrics(url)]
    return _sum(lines, f"{_LATENCY}_count"), _sum(lines, f"{_LATENCY}_sum")


def _sum(lines: Iterable[str], name: str) -> float:
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def _metrics(url: str) -> list[str]:
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=5) as response:  # noqa: S310 - ours
            text: str = response.read().decode()
    except (OSError, urllib.error.URLError, ValueError) as exc:
        raise FaultError(f"no workload answers at {url}: {exc}; give its --url") from exc
    return text.splitlines()
