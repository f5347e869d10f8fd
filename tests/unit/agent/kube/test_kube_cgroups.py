"""Spans that name their container or pod are joined to its cgroup, though their process is unknown."""

import json
import shutil
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from agent.enrich import Enricher
from agent.host.hierarchies import Hierarchies, discover
from agent.host.paths import HostPaths
from agent.kube.cgroups import find_cgroups
from agent.kube.directory import Pods
from agent.kube.podlist import read_pods
from tests.support.cgroup_trees import HYBRID_SPLIT, V2, machine
from tests.support.kubelet_pods import container_id, pod, uid

SERVER = container_id("vllm-a")
SIDECAR = container_id("vllm-a", "sidecar", 0)
SYSTEMD = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid('vllm-a').replace('-', '_')}.slice"
CGROUPFS = f"/kubepods/burstable/pod{uid('vllm-a')}"


def host(root: Path, mountinfo: str, tree: str, *cgroups: str) -> Hierarchies:
    """Return the hierarchies of a host that has these cgroups in one of its trees."""
    machine(root, mountinfo)
    (root / "proc/1").mkdir()
    shutil.copy(root / "proc/self/mountinfo", root / "proc/1/mountinfo")
    for path in cgroups:
        (root / f"{tree}{path}").mkdir(parents=True)
    return discover(HostPaths(root / "proc", root / "sys/fs/cgroup"))


def test_systemd_driver(tmp_path: Path) -> None:
    """The topmost cgroup of a container is its place, not what it nests, nor its monitor's."""
    place = f"{SYSTEMD}/crio-{SERVER}.scope"
    monitor = f"{SYSTEMD}/crio-conmon-{SERVER}.scope"
    trees = host(tmp_path, V2, "sys/fs/cgroup", monitor, f"{place}/init.scope")
    assert find_cgroups(trees, [SERVER, SIDECAR]) == {SERVER: place}


def test_cgroupfs_driver_on_a_hybrid_host(tmp_path: Path) -> None:
    """The tree of the cpu controller tells the place, as for processes."""
    places = (f"{CGROUPFS}/{SERVER}", f"{CGROUPFS}/{SIDECAR}")
    trees = host(tmp_path, HYBRID_SPLIT, "sys/fs/cgroup/cpu", *places, "/system.slice/x.service")
    assert find_cgroups(trees, [SERVER, SIDECAR]) == dict(
        zip((SERVER, SIDECAR), places, strict=True)
    )


def test_no_hierarchies() -> None:
    """Without cgroups nothing is found."""
    assert find_cgroups(Hierarchies(()), [SERVER]) == {}


def test_places_are_forgotten_with_their_containers() -> None:
    """A place is kept while its container is known, and asked for once only."""
    now_s = [0.0]
    pods = Pods(monotonic_s=lambda: now_s[0])
    body = json.dumps({"kind": "PodList", "items": [pod("vllm-a")]}).encode()
    pods.update(read_pods(body).pods)
    assert SERVER in pods.unplaced()
    pods.place({SERVER: "/x"})
    assert (pods.cgroup(SERVER), SERVER in pods.unplaced()) == ("/x", False)
    pods.update([])
    pods.place({})
    assert pods.cgroup(SERVER) == "/x"  # its last spans are still to come
    now_s[0] = 200.0
    pods.update([])
    pods.place({})
    assert pods.cgroup(SERVER) == ""


@pytest.mark.parametrize(
    ("said", "container"),
    [
        ({"container.id": SERVER}, SERVER),
        ({"k8s.pod.uid": uid("vllm-a"), "k8s.container.name": "server"}, SERVER),
        ({"k8s.pod.uid": uid("vllm-b")}, container_id("vllm-b")),
        ({"k8s.pod.uid": uid("vllm-a")}, ""),
    ],
)
def test_span_of_a_container(tmp_path: Path, said: dict[str, str], container: str) -> None:
    """A container in namespaces of its own is joined by what it says; of two containers neither is guessed."""
    trees = host(tmp_path, V2, "sys/fs/cgroup", f"{SYSTEMD}/cri-containerd-{SERVER}.scope")
    alone = pod("vllm-b")
    spec, status = alone["spec"], alone["status"]
    assert isinstance(spec, dict)
    assert isinstance(status, dict)
    del spec["containers"][1]
    body = json.dumps({"kind": "PodList", "items": [pod("vllm-a"), alone]}).encode()
    joiner = Enricher(HostPaths(tmp_path / "proc", tmp_path / "sys/fs/cgroup"), trees, "node-1")
    joiner.pods.update(read_pods(body).pods)
    joiner.pods.place({**find_cgroups(trees, joiner.pods.unplaced()), container_id("vllm-b"): "/b"})
    message = trace_service_pb2.ExportTraceServiceRequest()
    part = message.resource_spans.add()
    for key, value in {**said, "process.pid": "1", "host.name": "vllm-a"}.items():
        pair = part.resource.attributes.add()
        pair.key, pair.value.string_value = key, value
    part.scope_spans.add().spans.add().name = "x"
    joiner.enrich(message)
    told = {pair.key: pair.value.string_value for pair in part.resource.attributes}
    assert told.get("container.id", "") == container
    places = {SERVER: f"{SYSTEMD}/cri-containerd-{SERVER}.scope", container_id("vllm-b"): "/b"}
    assert told.get("tailcause.cgroup.path") == places.get(container)
    assert (joiner.joined, joiner.misses.total()) == ((1, 0) if container else (0, 1))
