"""One server process: start it on the shared socket, know when it serves, see it end."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kernels.errors import WorkloadError
from kernels.supervisor.processes import kill_exact, set_niceness, spawn, start_ticks
from kernels.supervisor.state import hook_socket

log = logging.getLogger(__name__)

DEPLOY_DRAIN_S = 30.0
"""How long a replaced server may take to finish the requests that it has accepted."""

_POLL_S = 0.01
_WARM_UP_NICENESS = 10


@dataclass(frozen=True)
class Release:
    """What a server process is told to be."""

    revision: str
    version: str
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ServeConfig:
    """What all releases of one workload have in common."""

    service: str
    model: str
    otlp: str | None = None
    hooks: Path | None = None
    """The folder of the sockets by which faults reach into the servers; none without it."""

    def command(self, release: Release, listen_fd: int, instance: str = "") -> list[str]:
        """Build the command line of one server process."""
        words = [sys.executable, "-m", "kernels.cli", "serve", "--listen-fd", str(listen_fd)]
        options = {
            "--service": self.service,
            "--instance": instance,
            "--model": self.model,
            "--otlp": self.otlp,
            "--hook": str(hook_socket(self.hooks, instance)) if self.hooks else None,
            "--revision": release.revision,
            "--version": release.version,
        }
        words += [word for name, value in options.items() if value for word in (name, value)]
        words += ["--set", f"drain_s={DEPLOY_DRAIN_S:g}"]
        words += [
            word for key, value in release.settings.items() for word in ("--set", f"{key}={value}")
        ]
        return words


class Replica:
    """A running server process; create it inside the event loop, on the main thread."""

    def __init__(self, process: subprocess.Popen[bytes], release: Release) -> None:
        loop = asyncio.get_running_loop()
        self.release = release
        self.pid = process.pid
        self.ticks = start_ticks(process.pid) or 0
        self.started_unix_s = time.time()
        self.serving: asyncio.Future[dict[str, object]] = loop.create_future()
        self.exited: asyncio.Future[int] = loop.create_future()
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        loop.add_reader(self._pidfd, self._reap)
        self._reader = loop.create_task(self._read_stdout())

    @classmethod
    def start(
        cls, command: Sequence[str], release: Release, listen_fd: int, procs_files: Sequence[Path]
    ) -> "Replica":
        """Start the process in the cgroup whose `cgroup.procs` files are given.

        It warms up at low priority, so that it takes no CPU from the release that serves; only
        where priority can be given back, which takes root.
        """
        process = spawn(
            command,
            procs_files=procs_files,
            pass_fds=(listen_fd,),
            stdout=subprocess.PIPE,
            niceness=_WARM_UP_NICENESS if _may_lower_niceness() else 0,
        )
        return cls(process, release)

    def on_exit(self, callback: Callable[["Replica"], None]) -> None:
        """Call back once the process has ended, for whatever reason."""
        self.exited.add_done_callback(lambda _: callback(self))

    def terminate(self) -> None:
        """Ask the server to stop accepting, finish what runs and leave."""
        kill_exact(self.pid, self.ticks, signal.SIGTERM)

    async def stop(self, drain_s: float) -> None:
        """SIGTERM, up to `drain_s` for the requests that run, then SIGKILL."""
        self.terminate()
        done, _ = await asyncio.wait({self.exited}, timeout=drain_s)
        if not done:
            log.warning("server did not drain pid=%d waited_s=%.0f", self.pid, drain_s)
            kill_exact(self.pid, self.ticks)
            await self.exited

    async def stopped_accepting(self, socket_inode: int) -> float:
        """Wait until the process has closed its listening socket; the unix time of that."""
        while not self.exited.done() and _holds_socket(self.pid, socket_inode):  # noqa: ASYNC110 - no event for that
            await asyncio.sleep(_POLL_S)
        return time.time()

    async def _read_stdout(self) -> None:
        """Read until the server's end: lines after the first must not fill the pipe."""
        if (pipe := self._process.stdout) is None:
            return
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while line := await reader.readline():
                self._note(line)
        finally:
            transport.close()

    def _note(self, line: bytes) -> None:
        with suppress(ValueError):
            event = json.loads(line)
            ready = isinstance(event, dict) and event.get("event") == "ready"
            if ready and not self.serving.done():
                if _may_lower_niceness():
                    set_niceness(self.pid, 0)
                self.serving.set_result(event)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        status = self._process.wait()
        if not self.serving.done():
            self.serving.set_exception(
                WorkloadError(f"the server ended with status {status} before it served")
            )
            self.serving.exception()  # a caller that stopped waiting need not hear of it
        self.exited.set_result(status)


def _may_lower_niceness() -> bool:
    return os.geteuid() == 0


def _holds_socket(pid: int, inode: int) -> bool:
    """Whether one of the process's descriptors is this socket."""
    try:
        entries = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    for entry in entries:
        with suppress(OSError):
            if str(entry.readlink()) == f"socket:[{inode}]":
                return True
    return False
