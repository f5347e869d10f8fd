"""Asking a running workload, and reading what the kernel and its metrics page say of it."""

import itertools
import json
import os
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.support.live_workload import Workload

SMALL = ("--set", "layers=1", "--set", "hidden=32", "--set", "heads=2", "--set", "sql_rows=200")
"""Options of `up` under which a server starts quickly and a token costs next to nothing."""

_NUMBERS: Iterator[int] = itertools.count()


def complete(url: str, tokens: int = 4, timeout_s: float = 30.0) -> float:
    """Ask for a completion that nobody asked for before; the seconds that it took."""
    prompt = f"question {os.getpid()} {next(_NUMBERS)}"
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, "ignore_eos": True}).encode()
    request = urllib.request.Request(f"{url}/v1/completions", body)  # noqa: S310 - our own server
    started = time.monotonic()
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
        assert json.loads(answer.read())["usage"]["completion_tokens"] == tokens
    return time.monotonic() - started


def answers_within(url: str, timeout_s: float) -> bool:
    """Tell whether a completion comes back in time."""
    try:
        complete(url, timeout_s=timeout_s)
    except (TimeoutError, OSError):
        return False
    return True


def metrics(url: str) -> str:
    """Read the metrics page."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as page:  # noqa: S310 - our own server
        text: str = page.read().decode()
    return text


def metric(url: str, name: str) -> float:
    """Read a metric, all its labels together."""
    lines = [line for line in metrics(url).splitlines() if line.startswith(name)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def connect_s(running: Workload) -> float:
    """Seconds that a TCP handshake with the workload takes, the best of a few."""
    address = (running.up.first["host"], running.up.first["port"])

    def once() -> float:
        started = time.monotonic()
        socket.create_connection(address, timeout=30).close()
        return time.monotonic() - started

    return min(once() for _ in range(3))


def state_of(pid: int) -> str:
    """Read the state letter of a process, proc(5): T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def cpu_s(pid: int) -> float:
    """Read the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Read the memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
