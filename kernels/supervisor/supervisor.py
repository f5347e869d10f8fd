"""Keeps one workload up: first release, rolling deploys, drain, and a state file that is true."""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kernels.errors import WorkloadError
from kernels.supervisor.actions import KillProcess
from kernels.supervisor.cgroups import Cgroup
from kernels.supervisor.control import Deployed, DeployRequest, Refused, Reply, Request
from kernels.supervisor.reaper import Reaper
from kernels.supervisor.replica import DEPLOY_DRAIN_S, Release, Replica, ServeConfig
from kernels.supervisor.state import WorkloadState, control_socket, write_state

log = logging.getLogger(__name__)

SERVER_DIED = 1
_WARM_UP_S = 120.0
_STOP_DRAIN_S = 3.0


@dataclass(frozen=True)
class UpConfig:
    """What `up` was asked to run."""

    state: Path
    serve: ServeConfig
    release: Release


class Supervisor:
    """Owns the listening socket and every server process that accepts from it."""

    def __init__(
        self, config: UpConfig, listener: socket.socket, cgroup: Cgroup | None, reaper: Reaper
    ) -> None:
        self._config = config
        self._listener = listener
        self._cgroup = cgroup
        self._reaper = reaper
        self._live: dict[Replica, int] = {}
        self._active: Replica | None = None
        self._one_at_a_time = asyncio.Lock()
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """Serve until SIGTERM, SIGINT or the death of the server; the exit code."""
        self._catch_signals()
        try:
            replica = self._start(self._config.release)
            if not await self._wait_until_serving(replica):
                return self._over.result()
            self._activate(replica)
            control = await asyncio.start_unix_server(
                self._answer, control_socket(self._config.state)
            )
            self._announce(replica)
            async with control:
                return await self._over
        finally:
            await asyncio.gather(*(replica.stop(_STOP_DRAIN_S) for replica in list(self._live)))

    def _catch_signals(self) -> None:
        """Drain on the first signal; later ones change nothing, as draining is short."""
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(signum, self._end, 0)

    def _end(self, code: int) -> None:
        if not self._over.done():
            self._over.set_result(code)

    def _start(self, release: Release) -> Replica:
        replica = Replica.start(
            self._config.serve.command(release, self._listener.fileno()),
            release,
            self._listener.fileno(),
            self._cgroup.procs_files if self._cgroup else (),
        )
        self._live[replica] = self._reaper.add(KillProcess(replica.pid, replica.ticks))
        replica.on_exit(self._exited)
        return replica

    def _exited(self, replica: Replica) -> None:
        self._reaper.forget(self._live.pop(replica))
        if replica is self._active and not self._over.done():
            status = replica.exited.result()
            log.error("server died pid=%d status=%d", replica.pid, status)
            self._end(SERVER_DIED)

    async def _wait_until_serving(self, replica: Replica) -> bool:
        """Wait; False when the workload is told to end first."""
        waited: set[asyncio.Future[Any]] = {replica.serving, self._over}
        await asyncio.wait(
            waited,
            timeout=_WARM_UP_S,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if self._over.done():
            return False
        if not replica.serving.done():
            raise WorkloadError(f"the server did not serve within {_WARM_UP_S:.0f} s")
        replica.serving.result()
        return True

    def _activate(self, replica: Replica) -> None:
        self._active = replica
        port = self._listener.getsockname()[1]
        write_state(
            self._config.state,
            WorkloadState(
                pid=os.getpid(),
                server_pid=replica.pid,
                port=port,
                cgroup=self._cgroup.path if self._cgroup else None,
                service=self._config.serve.service,
                model=self._config.serve.model,
                revision=replica.release.revision,
                version=replica.release.version,
                settings=replica.release.settings,
            ),
        )

    def _announce(self, replica: Replica) -> None:
        event = {
            "event": "ready",
            "pid": replica.pid,
            "port": self._listener.getsockname()[1],
            "cgroup": self._cgroup.path if self._cgroup else None,
        }
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client of the control socket; a client that leaves early harms nobody."""
        try:
            while line := await reader.readline():
                writer.write(msgspec.json.encode(await self._handle(line)) + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError) as exc:
            log.warning("control client lost error=%r", str(exc))
        finally:
            writer.close()

    async def _handle(self, line: bytes) -> Reply:
        try:
            request = msgspec.json.decode(line, type=Request)
        except msgspec.MsgspecError as exc:
            return Refused(f"not a request: {exc}")
        async with self._one_at_a_time:
            try:
                return await self._deploy(request)
            except WorkloadError as exc:
                log.warning("deploy refused revision=%s error=%r", request.revision, str(exc))
                return Refused(str(exc))

    async def _deploy(self, request: DeployRequest) -> Reply:
        """Bring the new one up on the same socket, then the old one out; no request is lost."""
        settings = {**self._config.release.settings, **request.settings}
        replica = self._start(Release(request.revision, request.version, settings))
        try:
            alive = await self._wait_until_serving(replica)
        except WorkloadError:
            await replica.stop(0)
            raise
        if not alive or (old := self._active) is None:
            return Refused("the workload is ending")
        accepting_unix_s = time.time()
        self._activate(replica)
        stopped = asyncio.create_task(
            old.stopped_accepting(os.fstat(self._listener.fileno()).st_ino)
        )
        await old.stop(DEPLOY_DRAIN_S)
        log.info("deployed revision=%s version=%s", request.revision, request.version)
        return Deployed(
            revision=request.revision,
            version=request.version,
            settings=settings,
            pid=replica.pid,
            started_unix_s=replica.started_unix_s,
            new_accepting_unix_s=accepting_unix_s,
            old_stopped_accepting_unix_s=await stopped,
            old_exited_unix_s=time.time(),
        )
