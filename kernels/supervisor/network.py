"""The network between clients and servers: two namespaces, the nearer one a router where faults can sit.

    clients ── link ══ clients [gate] servers ══ eth0 [inside]: the servers' listening socket

Only the listening socket is inside. A connection belongs to the namespace of the socket that accepted it, so
every byte of a request passes the gate; the server process itself stays in the machine's namespace and reaches
collector, database and cache as without a network of its own.
"""

import secrets
from ipaddress import IPv4Network

from kernels.supervisor.namespaces import NetworkError, RemoveNetwork, call, within
from kernels.supervisor.reaper import Reaper
from kernels.supervisor.state import NetworkState

RANGE = IPv4Network("198.18.0.0/15")
"""Set aside for tests of network devices (RFC 2544, appendix C.2.2): nobody is there."""

_TRIES = 20


def build(reaper: Reaper) -> NetworkState:
    """Make the network; needs root, iproute2 and veth devices."""
    word = secrets.token_hex(3)
    near, far = _free_networks()
    client, gate_near = map(str, near.hosts())
    gate_far, server = map(str, far.hosts())
    network = NetworkState(
        gate=f"tailcause-{word}-gate",
        inside=f"tailcause-{word}",
        link=f"tc-{word}",
        client=client,
        server=server,
    )
    reaper.add(RemoveNetwork(network.link, (network.inside, network.gate)))
    _make_links(network)
    prefix = near.prefixlen
    call("ip", "address", "add", f"{client}/{prefix}", "dev", network.link)
    call("ip", "link", "set", network.link, "up")
    for device, address in ((network.to_clients, gate_near), (network.to_servers, gate_far)):
        _up(network.gate, device, f"{address}/{prefix}")
    _up(network.inside, "eth0", f"{server}/{prefix}")
    _forward(network)
    call("ip", "-n", network.inside, "route", "add", "default", "via", gate_far)
    call("ip", "route", "add", str(far), "via", gate_near, "dev", network.link)
    return network


def _make_links(network: NetworkState) -> None:
    for name in (network.gate, network.inside):
        call("ip", "netns", "add", name)
    _veth(("link", "add", network.link), network.to_clients, network.gate)
    _veth(
        ("-n", network.gate, "link", "add", network.to_servers),
        "eth0",
        network.inside,
    )


def _veth(add: tuple[str, ...], peer: str, namespace: str) -> None:
    call("ip", *add, "type", "veth", "peer", "name", peer, "netns", namespace)


def _up(namespace: str, device: str, address: str) -> None:
    call("ip", "-n", namespace, "address", "add", address, "dev", device)
    call("ip", "-n", namespace, "link", "set", device, "up")


def _forward(network: NetworkState) -> None:
    """Let the gate route, whichever way the answers take: a fault may send them on a detour."""
    settings = ["net/ipv4/ip_forward=1"]
    settings += [f"net/ipv4/conf/{name}/rp_filter=0" for name in ("all", network.to_servers)]
    script = "; ".join(
        f"echo {s.rpartition('=')[2]} >/proc/sys/{s.partition('=')[0]}" for s in settings
    )
    ip, *rest = within(network.gate, ("sh", "-ec", script))
    call(ip, *rest)


def _free_networks() -> tuple[IPv4Network, IPv4Network]:
    """Draw two adjacent networks of four addresses that no route of this machine leads to."""
    for _ in range(_TRIES):
        start = int(RANGE.network_address) + 8 * secrets.randbelow(RANGE.num_addresses // 8)
        both = IPv4Network((start, 29))
        if not call("ip", "-4", "route", "show", "root", str(both)).strip():
            near, far = both.subnets(new_prefix=30)
            return near, far
    raise NetworkError(f"every network of {RANGE} that was tried is in use on this machine")
