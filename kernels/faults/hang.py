"""Fault `hang`: the server stops in the middle of what it does and does not end."""

from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultError, FaultKind, Injection
from kernels.supervisor.actions import ContinueProcess
from kernels.supervisor.processes import start_ticks, stop_exact


@dataclass(frozen=True)
class HangFault:
    """Stops the server's process with requests in flight: no token comes, no span ends.

    There is nothing to scale: whatever the intensity, it stands still until the fault is over.
    """

    name: str = "hang"
    kind: FaultKind = FaultKind.FAULT
    description: str = "the server stands still (SIGSTOP) until the fault is over"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def inject(self, context: FaultContext) -> Injection:
        """Stop every server to hit."""
        servers = context.servers()
        for server in servers:
            ticks = start_ticks(server.pid)
            if ticks is None:
                raise FaultError("the server has just been replaced or ended: try again")
            context.reaper.add(ContinueProcess(server.pid, ticks))
            stop_exact(server.pid, ticks)
        return Injection(context.target, {"pids": [server.pid for server in servers]})
