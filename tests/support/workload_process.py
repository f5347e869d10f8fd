"""A real workload server in a process of its own."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

SMALL = ("layers=1", "hidden=32", "heads=2", "sql_rows=200", "max_running=2")
"""Settings under which a server starts quickly and a token costs next to nothing."""


@dataclass(frozen=True)
class Server:
    """A running server: its base URL, its process and where its log goes."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    def log_events(self) -> list[dict[str, object]]:
        """Lines of the log so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


async def metric(server: Server, name: str) -> float:
    """Read the first sample of this name from /metrics."""
    async with aiohttp.ClientSession() as session, session.get(f"{server.url}/metrics") as response:
        for line in (await response.text()).splitlines():
            if line.startswith(name + "{"):
                return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"/metrics has no {name}")


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Wait for what another process does; the test's own time limit ends it."""
    while True:
        found = condition()
        if found if isinstance(found, bool) else await found:
            return
        await asyncio.sleep(0.03)


@contextmanager
def serving(directory: Path, *settings: str, arguments: tuple[str, ...] = ()) -> Iterator[Server]:
    """Start a server with SMALL and further settings; it is killed at the end if it still runs."""
    pairs = [word for pair in (*SMALL, *settings) for word in ("--set", pair)]
    command = [sys.executable, "-m", "kernels.cli", "serve", "--port", "0", "--cache"]
    log = directory / "server.log"
    with (
        log.open("w") as sink,
        subprocess.Popen(
            [*command, str(directory / "cache"), *arguments, *pairs],
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()
            ready = json.loads(line)
            yield Server(f"http://127.0.0.1:{ready['port']}", process, log)
        finally:
            process.kill()
