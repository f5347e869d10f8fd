"""Fault `net-rate`: the way back to the clients takes little more than they are sent."""

from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultError, FaultKind, Injection, interpolate
from kernels.faults.gate import NEEDS, at_the_gate, bytes_to_clients_per_s, network_of
from kernels.supervisor.namespaces import RunInNamespace, call, tool

_IDLE_BYTES_PER_S = 2_000
_BURST_BYTES = 3_200
"""Two full packets: the kernel needs room for one, tc-tbf(8)."""

_QUEUE_MS = 2_000
HEADROOM = ((1.5, 1.8), (3.0, 1.25), (6.0, 1.14))
"""(P99 factor, rate as a multiple of what was sent before), at 20 requests/s; 1.08 made it 11 times."""


@dataclass(frozen=True)
class NetRateFault:
    """Shapes what leaves the gate for the clients by a token bucket."""

    name: str = "net-rate"
    kind: FaultKind = FaultKind.FAULT
    description: str = "a narrow network from the servers to the clients (needs root)"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = NEEDS

    def inject(self, context: FaultContext) -> Injection:
        """Measure what is sent, then set the rate."""
        network = network_of(context)
        sent = bytes_to_clients_per_s(network, context)
        if sent < _IDLE_BYTES_PER_S:
            raise FaultError("the workload is idle: start `tailcause-workload load` first")
        bits = round(8 * sent * interpolate(HEADROOM, context.options.intensity))
        device = (tool("tc"), "qdisc", "replace", "dev", network.to_clients, "root")
        context.reaper.add(RunInNamespace(network.gate, (*device, "noqueue")))
        bucket = ("rate", f"{bits}bit", "burst", str(_BURST_BYTES), "latency", f"{_QUEUE_MS}ms")
        call(*at_the_gate(network, *device, "tbf", *bucket))
        return Injection(
            context.target,
            {"bits_per_s": bits, "bits_per_s_before": round(8 * sent), "namespace": network.gate},
        )
