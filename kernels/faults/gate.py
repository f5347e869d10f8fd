"""What the network faults share: the gate between clients and servers, and what passes it."""

import time
from pathlib import Path

from kernels.faults.base import FaultContext, FaultError
from kernels.supervisor.namespaces import within
from kernels.supervisor.state import NetworkState

NEEDS = ("--network",)
MEASURE_S = 3.0


def network_of(context: FaultContext) -> NetworkState:
    """Return the network of the workload; FaultError when it has none of its own."""
    if (network := context.workload.network) is None:
        raise FaultError("the workload has no network of its own: start `up --network` as root")
    return network


def at_the_gate(network: NetworkState, *command: str) -> tuple[str, ...]:
    """Build the arguments of `namespaces.call` for a command that runs in the gate."""
    return tuple(within(network.gate, command))


def bytes_to_clients_per_s(network: NetworkState, context: FaultContext) -> float:
    """Measure what the servers send to their clients, headers included, at the clients' end."""
    started, seen = time.monotonic(), _received(network)
    context.pause(MEASURE_S)
    return (_received(network) - seen) / (time.monotonic() - started)


def _received(network: NetworkState) -> int:
    file = Path("/sys/class/net") / network.link / "statistics/rx_bytes"
    try:
        return int(file.read_text())
    except OSError as exc:
        raise FaultError(f"the network of the workload is gone: {exc.strerror}") from exc
