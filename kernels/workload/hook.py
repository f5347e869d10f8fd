"""The way in for faults: a private socket by which this server can be disturbed, `serve --hook PATH`.

Off unless asked for. Whoever may connect owns the folder of the socket. A disturbance lasts as long as the
connection that asked for it, so that the death of the fault is its end.
"""

import asyncio
import logging
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from kernels.errors import WorkloadError
from kernels.workload.disturbances import Collector, Disturbance, LockHolder, Pace, Slow, Stall
from kernels.workload.hook_requests import (
    CollectGarbage,
    HoldLock,
    HookReply,
    HookRequest,
    SlowSteps,
)

log = logging.getLogger(__name__)

MOST_OBJECTS = 5_000_000
LONGEST_S = 60.0


class Hook:
    """The socket; create and use it in the event loop."""

    def __init__(self, path: Path, pace: Pace, lock: AbstractContextManager[object]) -> None:
        self._path = path
        self._pace = pace
        self._lock = lock
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen; a socket that a server before us left is replaced. Raises WorkloadError."""
        try:
            self._path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._serve, self._path)
            self._path.chmod(0o600)
        except OSError as error:
            raise WorkloadError(f"--hook {self._path}: {error.strerror}") from error

    async def close(self) -> None:
        """Take no more connections, and end the disturbances that are in force."""
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is None:
            return
        self._serving.add(task)
        try:
            await self._disturb(reader, writer)
        except asyncio.CancelledError:  # by `close`: all is undone
            log.info("hook closed")
        except (ConnectionError, ValueError) as error:
            log.warning("hook lost", extra={"fields": {"error": str(error)}})
        finally:
            self._serving.discard(task)
            writer.close()

    async def _disturb(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = msgspec.json.decode(await reader.readline(), type=HookRequest)
            disturbance = self._make(request)
        except (msgspec.MsgspecError, WorkloadError) as error:
            await _say(writer, HookReply("refused", str(error)))
            return
        await asyncio.to_thread(disturbance.start)
        log.warning("disturbed", extra={"fields": {"request": repr(request)}})
        try:
            await _say(writer, HookReply("disturbed"))
            await reader.read()
        finally:
            await asyncio.shield(asyncio.to_thread(disturbance.stop))
            log.info("undisturbed", extra={"fields": {"request": repr(request)}})
        await _say(writer, HookReply("undone"))

    def _make(self, request: HookRequest) -> Disturbance:
        if isinstance(request, HoldLock):
            _within(request.hold_s, LONGEST_S)
            _within(request.pause_s, LONGEST_S)
            return LockHolder(self._lock, request)
        if isinstance(request, CollectGarbage):
            _within(request.objects, MOST_OBJECTS)
            _within(request.pause_s, LONGEST_S)
            return Collector(request)
        if isinstance(request, SlowSteps):
            _within(request.factor - 1.0, 1000.0)
            return Slow(self._pace, request.factor)
        return Stall(self._pace)


def _within(value: float, most: float) -> None:
    if not 0 < value <= most:
        raise WorkloadError(f"{value:g} is not above 0 and at most {most:g}")


async def _say(writer: asyncio.StreamWriter, reply: HookReply) -> None:
    writer.write(msgspec.json.encode(reply) + b"\n")
    await writer.drain()
