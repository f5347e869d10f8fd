"""TCP retransmits and round-trip times by cgroup and peer."""

import ipaddress
import struct
import time
from collections.abc import Callable, Mapping

from ebpf.errors import NotSupportedError
from ebpf.layout import MAX_CGROUPS, PEER, SLOTS, TCP, TCP_CGROUP
from ebpf.libbpf import Object
from ebpf.maps import Map
from ebpf.probe import Kernel
from ebpf.probes.counting import Counters, drops
from ebpf.reading import Histogram, Labels, Reading, Readings

HOOKS = {
    "tcp_received": "tcp_rcv_space_adjust",
    "tcp_state": "inet_sock_set_state",
    "tcp_retransmitted": "tcp_retransmit_skb",
    "tcp_answered_again": "tcp_retransmit_synack",
}
"""Program → tracepoint."""
EXISTING = "tcp_existing"
OTHER_PEER = "other"
MAX_PEERS = 1024
_SINCE = (5, 11)
_CROWDED = MAX_PEERS * 3 // 4
_ROOMY = MAX_PEERS // 2
_IDLE_S = 60.0
_EMPTY = bytes(TCP_CGROUP.size)
_FIELDS = TCP.size // 8
_RTT_NS, _RETRANSMITS = SLOTS, SLOTS + 1


class Tcp:
    """The TCP probe; `hooks` names the tracepoints, by program."""

    name = "tcp"

    def __init__(
        self, hooks: Mapping[str, str] = HOOKS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._hooks = hooks
        self._object: Object | None = None
        self._kernel: Kernel | None = None
        self._recent = RecentPeers(clock)

    def attach(self, kernel: Kernel) -> None:
        """Load and attach; then look once for the owners of the sockets that exist."""
        if kernel.release < _SINCE:
            raise NotSupportedError("the tcp probe needs Linux 5.11 or newer")
        opened = kernel.open(self.name)
        try:
            for program, hook in self._hooks.items():
                opened.set_hook(program, hook)
            opened.select(EXISTING, True)
            opened.load()
            kernel.share_cgroups(opened)
            for program in self._hooks:
                opened.attach(program)
            walk = opened.attach_iterator(EXISTING)
            opened.read_iterator(walk)
            opened.detach(walk)
        except BaseException:
            opened.close()
            raise
        self._object, self._kernel = opened, kernel

    def read(self) -> Readings:
        """Return retransmits and round trips of every cgroup, and of its peers."""
        if self._object is None or self._kernel is None:
            return Readings()
        series: list[Reading] = []
        for slot, raw in enumerate(_entries(self._object.map("cgroups"))):
            if raw != _EMPTY:
                labels = {"cgroup": self._kernel.cgroup(slot)}
                counters = TCP_CGROUP.unpack(raw)
                series += _readings("tcp", labels, counters[:_FIELDS])
                others = {**labels, "peer": OTHER_PEER}
                series += _readings("tcp.peer", others, counters[_FIELDS:])
        peers = self._object.map("peers")
        found = {key: TCP.unpack(raw) for key, raw in peers.items()}
        for key, counters in found.items():
            slot, address = struct.unpack(PEER.format, key)
            labels = {"cgroup": self._kernel.cgroup(slot), "peer": peer_name(address)}
            series += _readings("tcp.peer", labels, counters)
        for key in self._recent.idle(found):
            peers.delete(key)
        runs = struct.iter_unpack("=Q", self._object.map("runs").lookup(b"\0" * 4) or b"")
        lost = drops(self._kernel.library, self._object, self.programs().values())
        return Readings(tuple(series), lost, sum(count for (count,) in runs))

    def forget(self, slots: frozenset[int]) -> None:
        """Clear what was counted under slots that are given to other cgroups."""
        if self._object is None:
            return
        cgroups, peers = self._object.map("cgroups"), self._object.map("peers")
        for slot in slots:
            cgroups.update(struct.pack("=I", slot), _EMPTY)
        for key in list(peers.keys()):
            if PEER.unpack(key)[0] in slots:
                peers.delete(key)

    def programs(self) -> Mapping[str, int]:
        """Return the attached programs."""
        opened = self._object
        return {name: opened.program_fd(name) for name in self._hooks} if opened else {}

    def detach(self) -> None:
        """Detach and unload."""
        if self._object is not None:
            self._object.close()
            self._object = None


class RecentPeers:
    """Which peers have said nothing for longest, once their map gets crowded; a peer that comes back starts at 0."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[bytes, tuple[Counters, float]] = {}

    def idle(self, peers: Mapping[bytes, Counters]) -> tuple[bytes, ...]:
        """Return the keys to remove, given all there are: none while there is room, none that was busy lately."""
        now_s = self._clock()
        seen = {}
        for key, counters in peers.items():
            before = self._seen.get(key)
            seen[key] = before if before and before[0] == counters else (counters, now_s)
        self._seen = seen
        if len(peers) <= _CROWDED:
            return ()
        longest_idle = sorted(seen, key=lambda key: seen[key][1])[: len(peers) - _ROOMY]
        return tuple(key for key in longest_idle if now_s - seen[key][1] >= _IDLE_S)


def peer_name(address: bytes) -> str:
    """Return 16 bytes as the address people know; "unknown" for none."""
    whole = ipaddress.IPv6Address(address)
    if whole.is_unspecified:
        return "unknown"
    return str(whole.ipv4_mapped or whole)


def _entries(found: Map) -> list[bytes]:
    raw = found.read_array(MAX_CGROUPS)
    return [raw[at : at + TCP_CGROUP.size] for at in range(0, len(raw), TCP_CGROUP.size)]


def _readings(metric: str, labels: Labels, counters: Counters) -> list[Reading]:
    """Give one cgroup's or peer's two series; without a sample there is no histogram, without events nothing."""
    made = []
    if any(counters[:SLOTS]):
        histogram = Histogram(counters[:SLOTS], counters[_RTT_NS] / 1e9)
        made.append(Reading(f"{metric}.rtt", labels, histogram))
    if any(counters):
        made.append(Reading(f"{metric}.retransmits", labels, float(counters[_RETRANSMITS])))
    return made
