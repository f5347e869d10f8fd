"""How the block I/O, TCP and memory probes name and bound what they label."""

import ipaddress
import struct
from pathlib import Path

import pytest

from ebpf.layout import IO, MEMORY
from ebpf.perf import online_cpus
from ebpf.probes.blkio import Blkio
from ebpf.probes.counting import per_cpu_items
from ebpf.probes.tcp import MAX_PEERS, RecentPeers, peer_name

VDA = 254 << 20
NVME_PARTITION = 259 << 20 | 3


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now_s


class Entries:
    """A map's entries."""

    def __init__(self, entries: dict[bytes, bytes]) -> None:
        self._entries = entries

    def items(self) -> list[tuple[bytes, bytes]]:
        """Return keys and values."""
        return list(self._entries.items())


def key(number: int) -> bytes:
    """Return the key of a peer."""
    return struct.pack("=I16x", number)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fd00::1", "fd00::1"),
        ("2001:db8:0:0:1::", "2001:db8:0:0:1::"),
        ("::", "unknown"),
    ],
)
def test_a_peer_has_the_address_people_know(address: str, name: str) -> None:
    """IPv4 is shown as such, IPv6 shortened, and no address is not an address."""
    assert peer_name(ipaddress.IPv6Address(address).packed) == name


def test_no_peer_is_removed_while_there_is_room() -> None:
    """Idle peers stay as long as three quarters of the map are not full."""
    clock = Clock()
    recent = RecentPeers(clock)
    peers = {key(i): (1,) for i in range(MAX_PEERS * 3 // 4)}
    recent.idle(peers)
    clock.now_s = 1000.0

    assert recent.idle(peers) == ()


def test_the_longest_idle_peers_make_room() -> None:
    """In a crowded map half stay, and whoever was busy within the last minute is among them."""
    clock = Clock()
    recent = RecentPeers(clock)
    peers = {key(i): (1,) for i in range(MAX_PEERS)}
    recent.idle(peers)
    clock.now_s = 61.0
    busy = {key(i) for i in range(0, MAX_PEERS, 3)}
    removed = recent.idle({one: (2,) if one in busy else (1,) for one in peers})

    assert len(removed) == MAX_PEERS // 2
    assert busy.isdisjoint(removed)


def test_a_crowd_of_busy_peers_stays() -> None:
    """Nobody who was busy within the last minute is removed, however full the map."""
    clock = Clock()
    recent = RecentPeers(clock)
    recent.idle({key(i): (1,) for i in range(MAX_PEERS)})
    clock.now_s = 61.0

    assert recent.idle({key(i): (2,) for i in range(MAX_PEERS)}) == ()


def test_a_device_is_named_as_in_sysfs(tmp_path: Path) -> None:
    """The link under /sys/dev/block ends in the device's name."""
    (tmp_path / "254:0").symlink_to("../../devices/virtio1/block/vda")

    assert Blkio(devices=tmp_path).device(VDA) == "vda"


def test_a_device_that_is_gone_keeps_its_numbers(tmp_path: Path) -> None:
    """Without a link there is still something to look for in the logs; it may come back."""
    probe = Blkio(devices=tmp_path)

    assert probe.device(NVME_PARTITION) == "259:3"
    (tmp_path / "259:3").symlink_to("nvme0n1")
    assert probe.device(NVME_PARTITION) == "nvme0n1"


def test_values_are_summed_over_the_cpus() -> None:
    """Field by field, by key."""
    raw = MEMORY.pack(1, 20) + MEMORY.pack(3, 40) + MEMORY.pack(5, 60)

    assert list(per_cpu_items(Entries({b"k": raw}), MEMORY.size)) == [(b"k", (9, 120))]


def test_an_io_series_has_as_many_fields_as_its_struct() -> None:
    """Two histograms, two sums and a count, eight bytes each."""
    assert len(IO.unpack(bytes(IO.size))) * 8 == IO.size


@pytest.mark.parametrize(("text", "cpus"), [("0\n", [0]), ("0-2,5,7-8\n", [0, 1, 2, 5, 7, 8])])
def test_online_cpus_are_listed(tmp_path: Path, text: str, cpus: list[int]) -> None:
    """The kernel writes them as ranges."""
    directory = tmp_path / "devices/system/cpu"
    directory.mkdir(parents=True)
    (directory / "online").write_text(text)

    assert list(online_cpus(tmp_path)) == cpus
