"""Keeps one workload up: first release, rolling deploys, drain, and a state file that is true."""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kernels.errors import WorkloadError
from kernels.supervisor.actions import KillProcess
from kernels.supervisor.control import Deployed, DeployRequest, Refused, Reply, Request
from kernels.supervisor.places import Places, balancer_command
from kernels.supervisor.reaper import Reaper
from kernels.supervisor.replica import DEPLOY_DRAIN_S, Release, Replica, ServeConfig
from kernels.supervisor.slot import Slot
from kernels.supervisor.state import NetworkState, WorkloadState, control_socket, write_state

log = logging.getLogger(__name__)

SERVER_DIED = 1
_WARM_UP_S = 120.0
_STOP_DRAIN_S = 3.0
_RESTART_PAUSE_S = 1.0


@dataclass(frozen=True)
class UpConfig:
    """What `up` was asked to run."""

    state: Path
    serve: ServeConfig
    release: Release
    network: NetworkState | None = None
    restarts: bool = False
    """Whether a server that dies is started again, as a kubelet does; else its death ends the workload."""


class Supervisor:
    """Owns the listening sockets and every server process that accepts from them."""

    def __init__(self, config: UpConfig, places: Places, reaper: Reaper) -> None:
        self._config = config
        self._places = places
        self._reaper = reaper
        self._live: dict[Replica, int] = {}
        self._one_at_a_time = asyncio.Lock()
        self._reviving: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """Serve until SIGTERM, SIGINT or the death of the server; the exit code."""
        self._catch_signals()
        try:
            if not await self._bring_up():
                return self._over.result()
            control = await asyncio.start_unix_server(
                self._answer, control_socket(self._config.state)
            )
            self._announce()
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

    async def _bring_up(self) -> bool:
        """Start every replica, then the balancer before them; False when told to end first."""
        release = self._config.release
        begun = [(slot, self._start(slot, release)) for slot in self._places.replicas]
        for slot, replica in begun:
            if not await self._wait_until_serving(replica):
                return False
            slot.active = replica
        if (front := self._places.balancer) is not None:
            balancer = self._launch(front, balancer_command(self._places), release)
            if not await self._wait_until_serving(balancer):
                return False
            front.active = balancer
        self._tell(release)
        return True

    def _start(self, slot: Slot, release: Release) -> Replica:
        command = self._config.serve.command(release, slot.listener.fileno(), slot.instance)
        return self._launch(slot, command, release)

    def _launch(self, slot: Slot, command: Sequence[str], release: Release) -> Replica:
        replica = Replica.start(command, release, slot.listener.fileno(), slot.procs_files)
        self._live[replica] = self._reaper.add(KillProcess(replica.pid, replica.ticks))
        replica.on_exit(self._exited)
        return replica

    def _exited(self, replica: Replica) -> None:
        self._reaper.forget(self._live.pop(replica))
        slots = (*self._places.replicas, self._places.front)
        slot = next((slot for slot in slots if replica is slot.active), None)
        if slot is None or self._over.done():
            return
        log.error("server died pid=%d status=%d", replica.pid, replica.exited.result())
        if not self._config.restarts or slot is self._places.balancer:
            self._end(SERVER_DIED)
            return
        task = asyncio.create_task(self._revive(slot, replica))
        self._reviving.add(task)
        task.add_done_callback(self._reviving.discard)

    async def _revive(self, slot: Slot, dead: Replica) -> None:
        """Start a server that has died again, as often as it takes; connections wait in its socket."""
        async with self._one_at_a_time:
            while slot.active is dead and not self._over.done():
                replica = self._start(slot, dead.release)
                try:
                    if await self._wait_until_serving(replica):
                        slot.active = replica
                        self._tell(dead.release)
                        log.info("restarted pid=%d instance=%s", replica.pid, slot.instance)
                except WorkloadError as exc:
                    log.warning("restart failed instance=%s error=%r", slot.instance, str(exc))
                    await asyncio.sleep(_RESTART_PAUSE_S)

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

    def _tell(self, release: Release) -> None:
        """Write down what serves now."""
        first, cgroup = self._places.replicas[0].state(), self._places.cgroup
        write_state(
            self._config.state,
            WorkloadState(
                pid=os.getpid(),
                server_pid=first.pid,
                port=self._places.front.port,
                cgroup=cgroup.path if cgroup else None,
                service=self._config.serve.service,
                model=self._config.serve.model,
                revision=release.revision,
                version=release.version,
                settings=release.settings,
                replicas=tuple(slot.state() for slot in self._places.replicas),
                host=self._host,
                network=self._config.network,
                restarts=self._config.restarts,
            ),
        )

    @property
    def _host(self) -> str:
        """The address by which clients on this machine reach the front."""
        return self._config.network.server if self._config.network else "127.0.0.1"

    def _announce(self) -> None:
        front, cgroup = self._places.front, self._places.cgroup
        event = {
            "event": "ready",
            "pid": front.state().pid,
            "host": self._host,
            "port": front.port,
            "cgroup": cgroup.path if cgroup else None,
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
        """Replace replica after replica; where one cannot start, those before it go back."""
        settings = {**self._config.release.settings, **request.settings}
        release = Release(request.revision, request.version, settings)
        before = [slot.active.release for slot in self._places.replicas if slot.active]
        steps: list[Deployed] = []
        try:
            for slot in self._places.replicas:
                step = await self._replace(slot, release)
                if step is None:
                    return Refused("the workload is ending")
                steps.append(step)
        except WorkloadError:
            for slot, old in list(zip(self._places.replicas, before, strict=True))[: len(steps)]:
                await self._replace(slot, old)
            raise
        log.info("deployed revision=%s version=%s", request.revision, request.version)
        return over_all(steps)

    async def _replace(self, slot: Slot, release: Release) -> Deployed | None:
        """Bring the new one up on the same socket, then the old one out; no request is lost."""
        replica = self._start(slot, release)
        try:
            alive = await self._wait_until_serving(replica)
        except WorkloadError:
            await replica.stop(0)
            raise
        if not alive or (old := slot.active) is None:
            return None
        accepting_unix_s = time.time()
        slot.active = replica
        self._tell(release)
        stopped = asyncio.create_task(old.stopped_accepting(slot.socket_inode))
        await old.stop(DEPLOY_DRAIN_S)
        return Deployed(
            revision=release.revision,
            version=release.version,
            settings=release.settings,
            pid=replica.pid,
            started_unix_s=replica.started_unix_s,
            new_accepting_unix_s=accepting_unix_s,
            old_stopped_accepting_unix_s=await stopped,
            old_exited_unix_s=time.time(),
        )


def over_all(steps: Sequence[Deployed]) -> Deployed:
    """Join the steps of a rolling deploy: from the first new replica that accepts to the last old one that has gone."""
    return msgspec.structs.replace(
        steps[-1],
        pid=steps[0].pid,
        started_unix_s=steps[0].started_unix_s,
        new_accepting_unix_s=steps[0].new_accepting_unix_s,
    )
