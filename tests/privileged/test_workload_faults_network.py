"""Network faults between real clients and a real server: what the kernel and a clock say."""

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.faults.net_loss import LOSS
from tests.support.live_workload import (
    Workload,
    eventually,
    fault,
    live,
    load,
    needs_cgroups,
    stop_well,
    workload,
)
from tests.support.lossy_namespace import why_no_namespace
from tests.support.workload_calls import SMALL, complete, connect_s, metrics

TUN = Path("/dev/net/tun")

pytestmark = [
    pytest.mark.privileged,
    needs_cgroups,
    pytest.mark.skipif(bool(why_no_namespace()), reason=why_no_namespace()),
]


@pytest.fixture(scope="module")
def running() -> Iterator[Workload]:
    """Share one workload with a network of its own, under a light load."""
    with workload("--network", *SMALL) as up, load(up.url, rate=10):
        yield up


def in_namespace(name: str, *command: str) -> str:
    """Run a command in a namespace."""
    words = ["ip", "netns", "exec", name, *command]
    path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    return subprocess.run(words, capture_output=True, text=True, check=True, env=path).stdout


def retransmitted(running: Workload) -> int:
    """Read the segments that the servers' side has sent again, as its kernel counts them."""
    text = in_namespace(running.told()["network"]["inside"], "cat", "/proc/net/snmp")
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("RetransSegs")])


def rules(running: Workload) -> str:
    """Read the packet filter of the gate."""
    return in_namespace(running.told()["network"]["gate"], "nft", "list", "ruleset")


def test_lost_packets_are_sent_again_until_the_rule_is_gone(running: Workload) -> None:
    """The servers' kernel retransmits, by its own count."""
    before = retransmitted(running)

    with live(fault(running, "net-loss", "--intensity", "6")) as injected:
        assert injected.first["parameters"]["lost_share"] == dict(LOSS)[6.0]
        assert eventually(lambda: retransmitted(running) > before + 3)
        stop_well(injected)

    assert rules(running) == ""


def test_kill_9_of_the_injector_takes_the_rule_away(running: Workload) -> None:
    """The reaper runs the undo in the namespace."""
    with live(fault(running, "net-loss")) as injected:
        assert "drop" in rules(running)

        injected.stop(signal.SIGKILL)

        assert eventually(lambda: rules(running) == "")


def test_a_narrow_network_takes_its_time_and_is_widened_again(running: Workload) -> None:
    """A page takes as long as its bytes need at the rate that the truth names."""
    with live(fault(running, "net-rate", "--intensity", "6")) as injected:
        started = time.monotonic()
        page = metrics(running.url)
        took_s = time.monotonic() - started
        needs_s = 8 * (len(page) - 2 * 3200) / injected.first["parameters"]["bits_per_s"]
        assert took_s > 0.8 * needs_s > 0.02
        stop_well(injected)

    gate = running.told()["network"]["gate"]
    assert "tbf" not in in_namespace(gate, "tc", "qdisc", "show", "dev", "clients")


@pytest.mark.skipif(not TUN.exists(), reason="needs /dev/net/tun")
def test_delayed_packets_delay_the_handshake_and_nothing_stays(running: Workload) -> None:
    """No handshake is quicker than the delay; without the fault all are."""
    with live(fault(running, "net-delay", "--intensity", "6")) as injected:
        delay_s = injected.first["parameters"]["delay_s"]
        assert connect_s(running) > 0.95 * delay_s
        complete(running.url)
        stop_well(injected)

    assert eventually(lambda: connect_s(running) < delay_s / 2)


@pytest.mark.skipif(not TUN.exists(), reason="needs /dev/net/tun")
def test_kill_9_of_the_injector_ends_the_delay(running: Workload) -> None:
    """Device and route go with the process that delays."""
    with live(fault(running, "net-delay", "--intensity", "6")) as injected:
        injected.stop(signal.SIGKILL)

        assert eventually(lambda: connect_s(running) < 0.1)

    gate = running.told()["network"]["gate"]
    assert "late" not in in_namespace(gate, "ip", "route")


def test_kill_9_of_up_leaves_no_namespace_and_no_link() -> None:
    """The reaper removes both."""
    with workload("--network", *SMALL) as up:
        network = up.told()["network"]
        assert Path("/sys/class/net", network["link"]).exists()

        up.up.stop(signal.SIGKILL)

        assert eventually(lambda: not Path("/sys/class/net", network["link"]).exists())
        assert eventually(lambda: not Path("/run/netns", network["gate"]).exists())
        assert eventually(lambda: not Path("/run/netns", network["inside"]).exists())
