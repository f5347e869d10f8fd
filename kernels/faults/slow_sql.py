"""Fault `slow-sql`: somebody else's transaction holds a lock on the tenants' table, again and again."""

import subprocess
import sys
from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultError, FaultKind, Injection, interpolate
from kernels.supervisor.actions import KillProcess
from kernels.supervisor.processes import spawn, start_ticks

PAUSE_S = 0.5
HOLD_S = ((1.5, 0.04), (3.0, 0.16), (6.0, 0.4))
"""(P99 factor, seconds that each transaction takes), measured at 20 requests/s."""


@dataclass(frozen=True)
class SlowSqlFault:
    """Locks the table in PostgreSQL as a migration does: every look-up waits for the transaction's end.

    The database takes the lock back by itself when the connection of the process that holds it ends.
    A missing index is another fault: `bad-deploy --variant dropped-index`.
    """

    name: str = "slow-sql"
    kind: FaultKind = FaultKind.FAULT
    description: str = "another transaction locks the tenants' table (PostgreSQL)"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = ("--set", "tenant_db=postgresql://…")

    def inject(self, context: FaultContext) -> Injection:
        """Start the process that locks."""
        url = context.workload.settings.get("tenant_db", "")
        if not url:
            raise FaultError(
                "the tenants are in a file that nobody locks: start `up --set tenant_db=postgresql://…`"
            )
        hold_s = interpolate(HOLD_S, context.options.intensity)
        words = ["--url", url, "--hold", f"{hold_s:g}", "--pause", f"{PAUSE_S:g}"]
        process = spawn(
            [sys.executable, "-m", "kernels.faults.table_lock", *words], stdout=subprocess.PIPE
        )
        context.reaper.add(KillProcess(process.pid, start_ticks(process.pid) or 0))
        told = process.stdout.readline().decode().split() if process.stdout else []
        if told[:1] != ["ready"]:
            raise FaultError("cannot lock the tenants' table: the reason is above")
        return Injection(
            target=told[1],
            parameters={"hold_s": hold_s, "pause_s": PAUSE_S},
            processes=(process,),
        )
