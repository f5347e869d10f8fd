"""Spans and samples get the names of their pod where it is known for sure, and nothing else."""

import json

import pytest
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.resource.v1 import resource_pb2

from agent.kube.describe import describe
from agent.kube.directory import Pods, Use
from agent.kube.label import label
from agent.kube.podlist import read_pods
from agent.telemetry.model import Sample
from agent.telemetry.names import BY_NAME
from tests.support.kubelet_pods import container_id, pod, uid

GPU = "GPU-1"
SERVER = container_id("vllm-a")


@pytest.fixture
def pods() -> Pods:
    """Return a directory of two pods, of which the first uses a GPU."""
    found = Pods()
    items = [pod("vllm-a"), pod("vllm-b")]
    body = json.dumps({"kind": "PodList", "items": items}).encode()
    found.update(read_pods(body, ("app",)).pods)
    found.assign("allocated", {GPU: (use("vllm-a"),)})
    found.place({SERVER: "/kubepods/a"})
    return found


def use(name: str, container: str = "server") -> Use:
    """Return a use of a device."""
    return Use("serving", name, container, uid(name), "allocated")


def said(**attributes: str) -> resource_pb2.Resource:
    """Return a resource; `_` stands for `.`."""
    return resource_pb2.Resource(
        attributes=[
            common_pb2.KeyValue(
                key=key.replace("_", "."), value=common_pb2.AnyValue(string_value=value)
            )
            for key, value in attributes.items()
        ]
    )


def told(resource: resource_pb2.Resource) -> dict[str, object]:
    """Return the attributes of a resource."""
    return {
        pair.key: [one.string_value for one in pair.value.array_value.values]
        if pair.value.HasField("array_value")
        else pair.value.string_value
        for pair in resource.attributes
    }


def test_container_is_described(pods: Pods) -> None:
    """A container's id brings the names of everything around it."""
    resource = said(container_id=SERVER)
    assert describe(resource, pods)
    assert told(resource) == {
        "container.id": SERVER,
        "tailcause.cgroup.path": "/kubepods/a",
        "k8s.pod.uid": uid("vllm-a"),
        "k8s.pod.name": "vllm-a",
        "k8s.namespace.name": "serving",
        "k8s.node.name": "node-1",
        "k8s.replicaset.name": "vllm-7c9d5f6b84",
        "k8s.deployment.name": "vllm",
        "k8s.pod.label.app": "vllm",
        "k8s.container.name": "server",
        "container.image.name": "registry.local:5000/team/vllm",
        "container.image.tags": ["v0.9.1"],
        "container.image.id": "registry.local/server@sha256:" + "cd" * 32,
        "tailcause.gpu.ids": [GPU],
    }


def test_pod_is_described_by_uid_or_name(pods: Pods) -> None:
    """What an SDK says of its pod is enough; a container that it does not name stays unknown."""
    for resource in (
        said(k8s_pod_uid=uid("vllm-b")),
        said(k8s_pod_name="vllm-b", k8s_namespace_name="serving"),
    ):
        assert not describe(resource, pods)  # its cgroup is not known
        assert told(resource)["k8s.deployment.name"] == "vllm"
        assert told(resource)["k8s.pod.uid"] == uid("vllm-b")
        assert "container.id" not in told(resource)
        assert "tailcause.gpu.ids" not in told(resource)


def test_container_is_described_by_pod_and_name(pods: Pods) -> None:
    """Pod and container name together are a container."""
    resource = said(k8s_pod_uid=uid("vllm-a"), k8s_container_name="server")
    describe(resource, pods)
    assert told(resource)["container.id"] == SERVER


def test_what_is_said_is_kept(pods: Pods) -> None:
    """Nothing that the sender says is overwritten or doubled."""
    resource = said(container_id=SERVER, k8s_pod_name="mine", k8s_deployment_name="")
    describe(resource, pods)
    keys = [pair.key for pair in resource.attributes]
    assert len(keys) == len(set(keys))
    assert told(resource)["k8s.pod.name"] == "mine"
    assert told(resource)["k8s.deployment.name"] == ""


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"container_id": "0" * 64},
        {"k8s_pod_name": "vllm-a"},
        {"k8s_pod_name": "vllm-a", "k8s_namespace_name": "other"},
        {"k8s_pod_name": "vllm-a", "k8s_namespace_name": "serving", "k8s_pod_uid": uid("old")},
        {"host_name": "vllm-a"},
    ],
)
def test_nothing_is_guessed(pods: Pods, attributes: dict[str, str]) -> None:
    """A name without its namespace, or with another uid, is somebody else's."""
    resource = said(**attributes)
    before = told(resource)
    assert not describe(resource, pods)
    assert told(resource) == before


def test_empty_directory_touches_nothing() -> None:
    """Without a kubelet every resource stays as it is."""
    resource = said(container_id=SERVER)
    assert not describe(resource, Pods())
    assert told(resource) == {"container.id": SERVER}


def sample(metric: str, **attributes: str) -> Sample:
    """Return a sample; `__` stands for `.`."""
    return Sample(metric, 1.0, 5, {k.replace("__", "."): v for k, v in attributes.items()})


def labels(one: Sample, pods: Pods) -> dict[str, object]:
    """Return the attributes that labelling adds to a sample, which must fit the catalogue."""
    [found] = label([one], pods)
    assert set(found.attributes) <= set(BY_NAME[one.metric].attributes)
    assert (found.metric, found.value, found.time_unix_ns) == (one.metric, 1.0, 5)
    return {key: value for key, value in found.attributes.items() if key not in one.attributes}


def test_samples_of_a_container_are_named(pods: Pods) -> None:
    """A container's metrics bear pod, namespace and container."""
    path = f"/kubepods/burstable/pod{uid('vllm-a')}/{SERVER}"
    one = sample("container.cpu.time", tailcause__cgroup__path=path, container__id=SERVER)
    assert labels(one, pods) == {
        "k8s.pod.name": "vllm-a",
        "k8s.namespace.name": "serving",
        "k8s.container.name": "server",
    }


def test_samples_of_a_pods_cgroup_are_named(pods: Pods) -> None:
    """The cgroup around a pod's containers bears the pod alone."""
    path = f"/kubepods/burstable/pod{uid('vllm-a')}"
    one = sample("container.cpu.time", tailcause__cgroup__path=path)
    assert labels(one, pods) == {"k8s.pod.name": "vllm-a", "k8s.namespace.name": "serving"}


@pytest.mark.parametrize("path", ["/", "/system.slice/sshd.service", "/kubepods/burstable"])
def test_samples_of_the_host_stay(pods: Pods, path: str) -> None:
    """What belongs to no pod bears none."""
    assert labels(sample("container.cpu.time", tailcause__cgroup__path=path), pods) == {}


def test_samples_of_a_gpu_are_named(pods: Pods) -> None:
    """A GPU that one container uses bears its names."""
    assert labels(sample("hw.power", hw__id=GPU), pods) == {
        "k8s.pod.name": "vllm-a",
        "k8s.namespace.name": "serving",
        "k8s.container.name": "server",
        "k8s.pod.uid": uid("vllm-a"),
    }
    assert labels(sample("hw.power", hw__id="GPU-2"), pods) == {}


def test_shared_gpu_bears_no_name(pods: Pods) -> None:
    """Under time-slicing a GPU's numbers are nobody's alone."""
    pods.assign("allocated", {GPU: (use("vllm-a"), use("vllm-b"))})
    assert labels(sample("hw.power", hw__id=GPU), pods) == {}


def test_gpu_of_two_containers_of_a_pod(pods: Pods) -> None:
    """Two containers of one pod are still one pod."""
    pods.assign("allocated", {GPU: (use("vllm-a"), use("vllm-a", "sidecar"))})
    found = labels(sample("hw.power", hw__id=GPU), pods)
    assert found["k8s.pod.name"] == "vllm-a"
    assert "k8s.container.name" not in found


def test_named_samples_stay(pods: Pods) -> None:
    """What bears a pod's name already is left alone."""
    one = sample("hw.power", hw__id=GPU, k8s__pod__name="x")
    assert label([one], pods)[0] is one
