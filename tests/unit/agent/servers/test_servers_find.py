"""Servers are found by what listens on loopback and by what pods say, and by nothing else."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.host.paths import HostPaths
from agent.kube.directory import Pods
from agent.kube.podlist import read_pods
from agent.servers import annotated
from agent.servers.listening import Listening
from agent.servers.roster import Roster
from agent.servers.settings import MAX_TARGETS, ServerSettings, Target, parse_targets
from tests.support.kubelet_pods import pod

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LOOPBACK, ANY, LAN = "0100007F", "00000000", "0A01A8C0"
ANY6 = "0" * 32
LOOPBACK6 = "0" * 24 + "01000000"
MAPPED = "0000000000000000FFFF00000100007F"


def line(address: str, port: int, inode: int, state: str = "0A") -> str:
    """Return a line of `net/tcp` as the kernel writes it."""
    return f"   0: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  0  0 {inode} 1 0 100 0\n"


def machine(root: Path, tcp: Sequence[str], tcp6: Sequence[str] = ()) -> HostPaths:
    """Return a procfs with these sockets, in this process's network."""
    first = root / "1"
    (first / "net").mkdir(parents=True)
    (first / "ns").mkdir()
    (first / "ns" / "net").symlink_to(os.readlink("/proc/self/ns/net"))  # noqa: PTH115
    (first / "net" / "tcp").write_text(HEAD + "".join(tcp))
    (first / "net" / "tcp6").write_text(HEAD + "".join(tcp6))
    return HostPaths(root, root)


def process(root: Path, pid: int, command: str, *inodes: int) -> None:
    """Add a process with these sockets."""
    folder = root / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "cmdline").write_text(command.replace(" ", "\0"))
    for number, inode in enumerate(inodes):
        (folder / "fd" / str(number)).symlink_to(f"socket:[{inode}]")


def test_servers_by_port_and_command(tmp_path: Path) -> None:
    """A known port of a known process on loopback, or on all addresses, is a server; its kind the page tells."""
    paths = machine(
        tmp_path,
        [line(LOOPBACK, 8000, 11), line(ANY, 30000, 12), line(ANY, 8002, 13)],
    )
    process(tmp_path, 100, "/usr/bin/python3 -m vllm.entrypoints.openai.api_server", 5, 11)
    process(tmp_path, 101, "python -m sglang.launch_server", 12)
    process(tmp_path, 102, "tritonserver --model-repository=/m", 13)
    assert [one.url for one in Listening(paths).targets()] == [
        "http://127.0.0.1:8000/metrics",
        "http://127.0.0.1:30000/metrics",
        "http://127.0.0.1:8002/metrics",
    ]


def test_path_of_the_servers_kind(tmp_path: Path) -> None:
    """A kind with a path of its own is asked there."""
    paths = machine(tmp_path, [line(ANY, 8000, 11)])
    process(tmp_path, 100, "/usr/bin/python3 /usr/local/bin/trtllm-serve acme/chat", 11)
    assert [one.url for one in Listening(paths).targets()] == [
        "http://127.0.0.1:8000/prometheus/metrics"
    ]


def test_ipv6(tmp_path: Path) -> None:
    """Loopback in IPv6 counts, bare, mapped, or as all addresses."""
    lines = [line(LOOPBACK6, 8000, 11), line(MAPPED, 8002, 12), line(ANY6, 30000, 13)]
    paths = machine(tmp_path, [], lines)
    process(tmp_path, 100, "vllm tritonserver sglang", 11, 12, 13)
    assert [one.url for one in Listening(paths).targets()] == [
        "http://[::1]:8000/metrics",
        "http://127.0.0.1:8002/metrics",
        "http://[::1]:30000/metrics",
    ]


@pytest.mark.parametrize(
    ("socket", "command"),
    [
        (line(LAN, 8000, 11), "vllm serve"),  # of another address
        (line(LOOPBACK, 8001, 11), "vllm serve"),  # of another port
        (line(LOOPBACK, 8000, 11, "01"), "vllm serve"),  # a connection
        (line(LOOPBACK, 8000, 11), "nginx"),
        (line(LOOPBACK, 8000, 99), "vllm serve"),  # somebody else's socket
        ("garbage\n", "vllm serve"),
    ],
)
def test_what_is_no_server(tmp_path: Path, socket: str, command: str) -> None:
    """Neither another address, nor port, nor program is asked."""
    paths = machine(tmp_path, [socket])
    process(tmp_path, 100, command, 11)
    assert Listening(paths).targets() == []


def test_a_socket_is_looked_up_once(tmp_path: Path) -> None:
    """While a socket stays, its process is not looked for again; one that has gone is forgotten."""
    paths = machine(tmp_path, [line(LOOPBACK, 8000, 11)])
    process(tmp_path, 100, "vllm serve", 11)
    listening = Listening(paths)
    assert len(listening.targets()) == 1
    (tmp_path / "100" / "fd" / "0").unlink()
    assert len(listening.targets()) == 1
    (tmp_path / "1" / "net" / "tcp").write_text(HEAD)
    assert listening.targets() == []


def test_another_network_is_not_searched(tmp_path: Path) -> None:
    """Where the agent has a network of its own, the host's loopback is not its own and is left alone."""
    paths = machine(tmp_path, [line(LOOPBACK, 8000, 11)])
    process(tmp_path, 100, "vllm serve", 11)
    net = tmp_path / "1" / "ns" / "net"
    net.unlink()
    net.symlink_to("net:[1]")
    assert Listening(paths).targets() == []


ASKS = {"prometheus.io/scrape": "true", "prometheus.io/port": "8000"}


def pods(annotations: dict[str, str], **changes: object) -> Pods:
    """Return a directory with one pod that says this, as the kubelet lists it."""
    import json  # noqa: PLC0415  for this one

    one = json.loads(json.dumps(pod("vllm-a")))
    one["metadata"]["annotations"] = annotations
    one["status"] |= {"podIP": "10.1.2.3", **changes}
    if "hostNetwork" in changes:
        one["spec"]["hostNetwork"] = one["status"].pop("hostNetwork")
    listed = read_pods(json.dumps({"kind": "PodList", "items": [one]}).encode())
    assert listed.unreadable == 0
    directory = Pods()
    directory.update(listed.pods)
    return directory


def found(directory: Pods, *, on_host: bool = True) -> list[Target]:
    """Return the targets of a directory."""
    return list(annotated.targets(directory.pods, on_host=on_host))


def test_annotated_pod() -> None:
    """A pod that asks for it is read at its own address, and bears its name."""
    (target,) = found(pods({**ASKS, "prometheus.io/path": "/prometheus/metrics"}))
    assert target.url == "http://10.1.2.3:8000/prometheus/metrics"
    assert target.pod is not None
    assert target.pod[1] == "vllm-a"
    (target,) = found(pods(ASKS, podIP="fd00::1"))
    assert target.url == "http://[fd00::1]:8000/metrics"


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {**ASKS, "prometheus.io/scrape": "false"},
        {"prometheus.io/scrape": "true"},
        {**ASKS, "prometheus.io/port": "80x"},
        {**ASKS, "prometheus.io/port": "0"},
        {**ASKS, "prometheus.io/port": "70000"},
        {**ASKS, "prometheus.io/port": "²"},
        {**ASKS, "prometheus.io/path": "metrics"},
        {**ASKS, "prometheus.io/path": "/x\r\nHost: y"},
        {**ASKS, "prometheus.io/path": "/x?y"},
        {**ASKS, "prometheus.io/scheme": "https"},
    ],
)
def test_annotations_that_say_nothing_usable(annotations: dict[str, str]) -> None:
    """Anybody may annotate a pod: what is no page of it is not asked, and does the pod no harm."""
    assert found(pods(annotations)) == []


@pytest.mark.parametrize(
    "changes", [{"podIP": ""}, {"podIP": "evil.example"}, {"phase": "Succeeded"}]
)
def test_pods_that_cannot_be_asked(changes: dict[str, str]) -> None:
    """A pod without an address, or that has ended, is not asked."""
    assert found(pods(ASKS, **changes)) == []


def test_pod_in_the_hosts_network() -> None:
    """A pod in the host's network is on the agent's loopback, if that is the host's."""
    directory = pods(ASKS, hostNetwork=True)
    assert found(directory)[0].host == "127.0.0.1"
    assert found(directory, on_host=False)[0].host == "10.1.2.3"


def test_roster_joins_what_is_one_server(tmp_path: Path) -> None:
    """What is configured, annotated and listens at one address is read once; who named it first has it."""
    paths = machine(tmp_path, [line(ANY, 8000, 11), line(ANY, 30000, 12)])
    process(tmp_path, 100, "vllm serve", 11)
    process(tmp_path, 101, "sglang", 12)
    directory = pods(ASKS, hostNetwork=True)
    configured = parse_targets(("http://localhost:30000",))
    roster = Roster(ServerSettings(configured, discover=True), directory, paths)
    targets = roster.targets()
    assert [(one.host, one.port) for one in targets] == [("localhost", 30000), ("127.0.0.1", 8000)]
    assert targets[1].pod is not None
    assert [roster.is_configured(one) for one in targets] == [True, False]


def test_nobody_is_looked_for_unasked(tmp_path: Path) -> None:
    """Without `servers_discover` neither sockets nor pods are looked at."""
    paths = machine(tmp_path, [line(ANY, 8000, 11)])
    process(tmp_path, 100, "vllm serve", 11)
    assert Roster(ServerSettings(), pods(ASKS), paths).targets() == ()


def test_roster_looks_again(tmp_path: Path) -> None:
    """A server that comes later is found ten seconds later, and one that goes is left."""
    paths = machine(tmp_path, [])
    now_s = 0.0
    roster = Roster(ServerSettings(discover=True), Pods(), paths, lambda: now_s)
    assert roster.targets() == ()
    process(tmp_path, 100, "vllm serve", 11)
    (tmp_path / "1" / "net" / "tcp").write_text(HEAD + line(ANY, 8000, 11))
    now_s = 5.0
    assert roster.targets() == ()
    now_s = 10.0
    assert len(roster.targets()) == 1
    (tmp_path / "1" / "net" / "tcp").write_text(HEAD)
    now_s = 20.0
    assert roster.targets() == ()


def test_targets_are_bounded(tmp_path: Path) -> None:
    """Beyond the bound targets are left out and counted, those of the configuration last."""
    configured = parse_targets(tuple(f"http://127.0.0.1:{9000 + i}" for i in range(MAX_TARGETS)))
    paths = machine(tmp_path, [line(ANY, 8000, 11)])
    process(tmp_path, 100, "vllm serve", 11)
    roster = Roster(ServerSettings(configured, discover=True), Pods(), paths)
    assert roster.targets() == configured
    assert roster.lost == {"too_many_targets": 1}
