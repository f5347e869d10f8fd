"""Fault `oom-kill`: a process in the server's cgroup leaks until the kernel kills the server."""

import sys
import time
from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultError, FaultKind, Injection
from kernels.supervisor.actions import KillProcess, WriteFile
from kernels.supervisor.cgroups import Cgroup
from kernels.supervisor.memory import MemoryGroup
from kernels.supervisor.mounts import discover
from kernels.supervisor.processes import spawn, start_ticks

ROOM_BYTES = 16 << 20
_WAIT_S = 20.0
_POLL_S = 0.05


@dataclass(frozen=True)
class OomKillFault:
    """Limits the memory of one server to what it has, and lets a leaky sidecar use up the rest.

    The kernel kills the largest process, which is the server; `up --restart` starts it again. The limit is
    lifted after that one kill, so that what follows is a restart and not a loop of them.
    """

    name: str = "oom-kill"
    kind: FaultKind = FaultKind.FAULT
    description: str = "the kernel kills the server for want of memory, once (needs root)"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ("--restart",)

    def inject(self, context: FaultContext) -> Injection:
        """Leak until the kernel has killed."""
        server = context.servers()[0]
        if not context.workload.restarts:
            raise FaultError("nobody would start the server again: start `up --restart`")
        if server.cgroup is None:
            raise FaultError("the server has no cgroup: start `tailcause-workload up` as root")
        cgroup = Cgroup(discover(), server.cgroup)
        memory = MemoryGroup(cgroup)
        lifted, ticks = memory.limit_text(), start_ticks(server.pid)
        limit_bytes = memory.use().kept + ROOM_BYTES
        context.reaper.add(WriteFile(str(memory.limit_file), lifted))
        memory.set_limit(limit_bytes)
        command = [sys.executable, "-m", "kernels.faults.leak", str(2 * ROOM_BYTES)]
        leak = spawn(command, procs_files=cgroup.procs_files)
        context.reaper.add(KillProcess(leak.pid, start_ticks(leak.pid) or 0))
        kills = memory.kills()
        try:
            _wait_for_kill(context, memory, kills)
        finally:
            leak.kill()
            leak.wait()
            memory.lift_limit(lifted)
        if ticks is None or start_ticks(server.pid) == ticks:
            raise FaultError("the kernel killed the leak and not the server: is it that small?")
        return Injection(
            target=server.instance,
            parameters={"limit_bytes": limit_bytes, "killed_pid": server.pid},
        )


def _wait_for_kill(context: FaultContext, memory: MemoryGroup, kills: int) -> None:
    deadline = time.monotonic() + _WAIT_S
    while memory.kills() == kills:
        context.pause(_POLL_S)
        if time.monotonic() > deadline:
            raise FaultError(f"the kernel killed nobody within {_WAIT_S:.0f} s: is there swap?")
