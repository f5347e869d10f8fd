"""Disks and network interfaces: which are read, in what units, and how many at most."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.collectors.base import CollectorContext, NoData
from agent.collectors.disk import MAX_DISKS, DiskCollector
from agent.collectors.network import MAX_INTERFACES, NetworkCollector
from agent.host.paths import HostPaths
from agent.host.selection import Selection
from agent.telemetry.model import Sample

Host = Callable[[str], HostPaths]


def values(samples: list[Sample], metric: str) -> dict[tuple[object, ...], float]:
    """Return a metric's values by the values of its attributes."""
    return {tuple(s.attributes.values()): s.value for s in samples if s.metric == metric}


def fake_procfs(root: Path, name: str, text: str) -> HostPaths:
    """Lay out a procfs with one file beside its boot time."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    (root / "stat").write_text("cpu 0\nbtime 1\n")
    return HostPaths(root, root)


def test_disks_in_base_units(host: Host) -> None:
    """Sectors become bytes and milliseconds seconds, by direction."""
    samples = DiskCollector(CollectorContext(host("v2"))).collect()
    assert values(samples, "system.disk.io")["vda", "read"] == 4588402 * 512
    assert values(samples, "system.disk.io")["vda", "write"] == 4089112 * 512
    assert values(samples, "system.disk.operations")["vda", "read"] == 100592
    assert values(samples, "system.disk.merged")["vda", "write"] == 51540
    assert values(samples, "system.disk.operation_time")["vda", "write"] == pytest.approx(11.259)
    assert values(samples, "system.disk.io_time") == {("vda",): 7.952, ("nvme0n1",): 5.12}


def test_what_a_disk_counts_again_is_left_out(host: Host) -> None:
    """Loop devices, partitions and volumes go by default; an empty list keeps all."""
    context = CollectorContext(host("v2"))
    every = replace(context, selection=Selection(disk_exclude=()))
    assert {key[0] for key in values(DiskCollector(context).collect(), "system.disk.io_time")} == {
        "vda",
        "nvme0n1",
    }
    assert len(values(DiskCollector(every).collect(), "system.disk.io_time")) == 6


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("sda", True), ("sda1", False), ("sdab", True), ("sdab12", False), ("vda", True),
        ("xvda", True), ("xvda1", False), ("nvme0n1", True), ("nvme10n2p3", False),
        ("nvme0c0n1", True), ("mmcblk0", True), ("mmcblk0p1", False), ("md127", False),
        ("dm-3", False), ("zram0", False), ("sr0", False), ("loop12", False),
    ],
)  # fmt: skip
def test_disks_and_partitions_are_told_apart(name: str, read: bool) -> None:
    """Whole disks are read, whatever the driver calls them."""
    assert Selection().disk(name) is read


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("lo", True), ("eth0", True), ("enp3s0f1np1", True), ("ib0", True), ("bond0", True),
        ("wlan0", True), ("veth12ab", False), ("docker0", False), ("br-0a1b2c", False),
        ("cali123", False), ("flannel.1", False), ("cilium_host", False), ("ifb1", False),
    ],
)  # fmt: skip
def test_cards_and_virtual_interfaces_are_told_apart(name: str, read: bool) -> None:
    """Containers' ends and bridges are left out, cards and InfiniBand are not."""
    assert Selection().interface(name) is read


def test_network_by_interface_and_direction(host: Host) -> None:
    """Bytes, packets, errors and drops of each way; a long name runs into its numbers."""
    samples = NetworkCollector(CollectorContext(host("v1"))).collect()
    assert values(samples, "system.network.io") == {
        ("lo", "receive"): 922233,
        ("lo", "transmit"): 922233,
        ("eth0", "receive"): 309551854,
        ("eth0", "transmit"): 356909,
    }
    assert values(samples, "system.network.packet.count")["eth0", "transmit"] == 4091
    assert values(samples, "system.network.errors")["eth0", "receive"] == 2
    assert values(samples, "system.network.packet.dropped")["eth0", "transmit"] == 3


def test_disks_past_the_bound_are_counted(tmp_path: Path) -> None:
    """A storage node with thousands of disks does not flood the back end, and says what it loses."""
    rows = (f"8 {n} sd{chr(97 + n // 26)}{chr(97 + n % 26)} " + "1 " * 11 for n in range(200))
    paths = fake_procfs(tmp_path, "diskstats", "\n".join(rows))
    collector = DiskCollector(CollectorContext(paths))
    samples = collector.collect()
    assert len(values(samples, "system.disk.io_time")) == MAX_DISKS
    assert values(samples, "tailcause.pipe.dropped") == {("disk", "too_many"): 200 - MAX_DISKS}


def test_interfaces_past_the_bound_are_counted(tmp_path: Path) -> None:
    """As with disks; and kernels of old wrote no blank after the name."""
    rows = (f"eth{n}:{n} " + "0 " * 15 for n in range(200))
    paths = fake_procfs(tmp_path, "1/net/dev", "\n\n" + "\n".join(rows))
    samples = NetworkCollector(CollectorContext(paths)).collect()
    received = values(samples, "system.network.io")
    assert received["eth7", "receive"] == 7
    assert len(received) == 2 * MAX_INTERFACES
    assert values(samples, "tailcause.pipe.dropped") == {
        ("network", "too_many"): 200 - MAX_INTERFACES
    }


def test_machine_without_disks_says_so(tmp_path: Path) -> None:
    """A diskless node has no disk counters; that is not a 0."""
    paths = fake_procfs(tmp_path, "diskstats", "7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n")
    with pytest.raises(NoData, match="no disk"):
        DiskCollector(CollectorContext(paths)).collect()
