"""Fault `net-loss`: the network between clients and servers loses packets, whichever way they go."""

from dataclasses import dataclass

from kernels.faults.base import FaultContext, FaultKind, Injection, interpolate
from kernels.faults.gate import NEEDS, at_the_gate, network_of
from kernels.supervisor.namespaces import RunInNamespace, call, tool

TABLE = "inet tailcause_loss"
_OF = 10_000

LOSS = ((1.5, 0.002), (3.0, 0.003), (6.0, 0.007))
"""(P99 factor, share of packets lost), at 20 requests/s: set by what 0.4 % (4.9 times), 2 % (14) and 6 % (26) did.

A lost packet costs a retransmission timeout (at least 200 ms, RFC 6298 as Linux has it), so that the P99 moves
in steps: a share that hits fewer than one request in a hundred moves nothing, and the first step is to 3 or 4 times.
"""


@dataclass(frozen=True)
class NetLossFault:
    """Drops packets at random where they pass the gate."""

    name: str = "net-loss"
    kind: FaultKind = FaultKind.FAULT
    description: str = "packets between clients and servers get lost (needs root)"
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = NEEDS

    def inject(self, context: FaultContext) -> Injection:
        """Put the rule in force."""
        network = network_of(context)
        share = interpolate(LOSS, context.options.intensity)
        empty = f"add table {TABLE}; delete table {TABLE}"
        chain = f"add chain {TABLE} passing {{ type filter hook forward priority 0; }}"
        lost = f"meta l4proto tcp numgen random mod {_OF} < {round(share * _OF)} counter drop"
        rules = f"{empty}; add table {TABLE}; {chain}; add rule {TABLE} passing {lost}"
        context.reaper.add(RunInNamespace(network.gate, (tool("nft"), empty)))
        call(*at_the_gate(network, tool("nft"), rules))
        return Injection(context.target, {"lost_share": share, "namespace": network.gate})
