"""The parts of a demo as processes that never outlive it and whose death is noticed at once."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec

from detector.cli.demo.errors import NotReachedError, PartDiedError
from detector.cli.demo.guard import alarm
from detector.errors import CannotStartError

_PR_SET_PDEATHSIG = 1
_LINE_LIMIT_BYTES = 1 << 20
_LOG_TAIL_BYTES = 8192
_LIBC = ctypes.CDLL(None, use_errno=True)

Event = dict[str, Any]


class Wave(IntEnum):
    """The order in which parts are stopped: first what acts on the workload, last what observes it."""

    ACTORS = 0
    SERVICES = 1


_GRACE_S = {Wave.ACTORS: 1.5, Wave.SERVICES: 3.2}
"""Together less than five seconds, the time a Ctrl-C may take."""


@dataclass(frozen=True)
class PartSpec:
    """A part to start: `arguments` follow `python -m`; `may_finish` allows it to end by itself with 0."""

    name: str
    arguments: Sequence[str]
    wave: Wave = Wave.SERVICES
    may_finish: bool = False
    on_event: Callable[[Event], None] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """What it has in its environment beside ours."""

    @property
    def argv(self) -> list[str]:
        """The whole command line; -P keeps a folder of the user's own from shadowing our packages."""
        return [sys.executable, "-P", "-m", *self.arguments]


@dataclass
class Part:
    """A started part; its JSON lines on stdout arrive as events."""

    spec: PartSpec
    process: asyncio.subprocess.Process
    log: Path
    ended: bool = False
    _events: dict[str, asyncio.Future[Event]] = field(default_factory=dict)

    async def event(self, name: str, timeout_s: float) -> Event:
        """Wait for the first event of that name."""
        try:
            return await asyncio.wait_for(asyncio.shield(self._slot(name)), timeout_s)
        except TimeoutError as exc:
            raise NotReachedError(
                f"the {self.spec.name} was not {name} after {timeout_s:.0f} s (log: {self.log})"
            ) from exc

    def deliver(self, line: bytes) -> None:
        """Take in one line of the part's stdout."""
        try:
            event = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            return  # a line for people; the log has it
        if self.spec.on_event:
            self.spec.on_event(event)
        slot = self._slot(str(event.get("event", "")))
        if not slot.done():
            slot.set_result(event)

    def last_words(self) -> str:
        """Return the last line of the part's log."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError as exc:
            return f"(no log: {exc.strerror})"
        return next((line.strip() for line in reversed(lines) if line.strip()), "(it said nothing)")

    def _slot(self, name: str) -> asyncio.Future[Event]:
        return self._events.setdefault(name, asyncio.get_running_loop().create_future())


class Fleet:
    """All parts of a run; `failure` fails with the first part that dies."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._parts: list[Part] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.failure = alarm()

    @property
    def pids(self) -> dict[str, int]:
        """The process id of every part that lives."""
        return {part.spec.name: part.process.pid for part in self._parts if not part.ended}

    async def start(self, spec: PartSpec) -> Part:
        """Start a part in a process group of its own that dies with this process."""
        log = self._logs / f"{spec.name}.log"
        try:
            with log.open("ab", buffering=0) as file:
                process = await asyncio.create_subprocess_exec(
                    *spec.argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=file,
                    limit=_LINE_LIMIT_BYTES,
                    process_group=0,
                    preexec_fn=_die_with(os.getpid()),
                    env={**os.environ, "PYTHONUNBUFFERED": "1", **spec.environment},
                )
        except OSError as exc:
            raise CannotStartError(f"cannot start the {spec.name}: {exc.strerror}") from exc
        part = Part(spec, process, log)
        self._parts.append(part)
        task = asyncio.create_task(self._follow(part), name=f"follow {spec.name}")
        self._tasks.add(task)
        return part

    async def stop(self) -> None:
        """Stop all parts, politely and then not; returns within about five seconds."""
        self._stopping = True
        for wave in Wave:
            await self._stop_wave([p for p in self._parts if p.spec.wave is wave], _GRACE_S[wave])
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)

    def kill(self) -> None:
        """Kill every part's process group now."""
        self._stopping = True
        for part in self._parts:
            _kill_group(part)

    async def _stop_wave(self, parts: list[Part], grace_s: float) -> None:
        living = [part for part in parts if not part.ended]
        for part in living:
            with contextlib.suppress(ProcessLookupError):
                part.process.terminate()
        waits = [asyncio.ensure_future(part.process.wait()) for part in living]
        if waits:
            _, late = await asyncio.wait(waits, timeout=grace_s)
            for part in living:
                _kill_group(part)
            if late:
                await asyncio.wait(late, timeout=1)

    async def _follow(self, part: Part) -> None:
        """Read the part's stdout to its end, then see whether it was meant to end."""
        pump = asyncio.create_task(_pump(part))
        code = await part.process.wait()
        part.ended = True
        await asyncio.wait({pump}, timeout=0.5)  # a grandchild may hold the pipe open
        pump.cancel()
        expected = self._stopping or (part.spec.may_finish and code == 0)
        if not expected and not self.failure.done():
            self.failure.set_exception(_obituary(part, code))


async def _pump(part: Part) -> None:
    """Copy the part's stdout into its log and deliver its events."""
    stream = part.process.stdout
    if stream is None:
        return
    with part.log.open("ab", buffering=0) as file:
        while True:
            try:
                line = await stream.readline()
            except ValueError:
                continue  # a line over the limit; the stream has dropped it
            if not line:
                return
            with contextlib.suppress(OSError):  # a full disk costs the log, not the run
                file.write(line)
            part.deliver(line)


def _obituary(part: Part, code: int) -> PartDiedError:
    how = (
        f"was killed by {signal.Signals(-code).name}"
        if code < 0
        else f"ended with exit code {code}"
    )
    message = f"the {part.spec.name} {how}: {part.last_words()} (log: {part.log})"
    return PartDiedError(message, 2 if code == 2 else 1)


def _kill_group(part: Part) -> None:
    if not part.ended:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(part.process.pid, signal.SIGKILL)


def _die_with(parent: int) -> Callable[[], None]:
    """Return what a child does before exec so that the kernel kills it when `parent` dies (prctl(2))."""

    def before_exec() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the request was made
            os._exit(1)

    return before_exec
