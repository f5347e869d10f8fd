"""Fault `net-delay`: every packet to the clients takes longer on its way."""

import subprocess
import sys
from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultError, FaultKind, Injection, interpolate
from kernels.faults.gate import NEEDS, at_the_gate, network_of
from kernels.supervisor.actions import KillProcess
from kernels.supervisor.processes import spawn, start_ticks

DELAY_S = ((1.5, 0.015), (3.0, 0.055), (6.0, 0.1))
"""(P99 factor, delay one way), at 20 requests/s, set by what 20 (1.7 times), 80 (4.2) and 200 ms (14) did.

A request waits it out once for its handshake and once for its first token; later tokens are on their way together.
"""


@dataclass(frozen=True)
class NetDelayFault:
    """Leads the packets to the clients over a TUN device and a process that holds each one back.

    The device and its route go with the process, however that ends.
    """

    name: str = "net-delay"
    kind: FaultKind = FaultKind.FAULT
    description: str = "packets from the servers to the clients are late (needs root)"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = NEEDS

    def inject(self, context: FaultContext) -> Injection:
        """Start the process and wait until it has the route."""
        network = network_of(context)
        delay_s = interpolate(DELAY_S, context.options.intensity)
        arguments = (
            "--to",
            network.client,
            "--device",
            network.to_clients,
            "--delay",
            f"{delay_s:g}",
        )
        words = [sys.executable, "-m", "kernels.faults.delay_line", *arguments]
        process = spawn(list(at_the_gate(network, *words)), stdout=subprocess.PIPE)
        context.reaper.add(KillProcess(process.pid, start_ticks(process.pid) or 0))
        if process.stdout is None or process.stdout.readline() != b"ready\n":
            raise FaultError(
                "no packet can be delayed here: the reason is above (needs /dev/net/tun)"
            )
        return Injection(
            context.target,
            {"delay_s": delay_s, "namespace": network.gate},
            processes=(process,),
        )
