"""The kubelet's list of pods is read for what joins and describes, whatever it holds."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.kube.errors import KubeletError
from agent.kube.model import Image, Pod
from agent.kube.podlist import PodList, read_image, read_pods
from agent.kube.quantity import parse_quantity
from tests.support.kubelet_pods import container_id, pod, uid

_KEYS = (
    *("metadata", "spec", "status", "name", "uid", "namespace", "containers", "resources"),
    *("limits", "cpu", "startTime", "conditions", "type", "ownerReferences", "labels"),
)
_LEAF = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
_JSON = st.recursive(
    _LEAF,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4)
    ),
    max_leaves=20,
)


def listed(*pods: object, labels: tuple[str, ...] = (), max_pods: int = 1024) -> PodList:
    """Return what is read of an answer with these pods."""
    body = json.dumps({"kind": "PodList", "apiVersion": "v1", "items": list(pods)})
    return read_pods(body.encode(), labels, max_pods)


def one(**changes: object) -> Pod:
    """Return what is read of one pod."""
    [found] = listed(pod("vllm-a", "serving", **changes)).pods
    return found


def test_identity_of_a_pod() -> None:
    """Name, namespace, node, phase, readiness, class, start and owner are taken over."""
    found = one()
    assert (found.uid, found.name, found.namespace, found.node) == (
        uid("vllm-a"),
        "vllm-a",
        "serving",
        "node-1",
    )
    assert (found.phase, found.ready, found.qos_class) == ("Running", True, "Burstable")
    assert found.start_unix_s == 1_796_032_800.0
    assert (found.owner.kind, found.owner.name, found.owner.deployment) == (
        "ReplicaSet",
        "vllm-7c9d5f6b84",
        "vllm",
    )


def test_containers_of_a_pod() -> None:
    """Servers, sidecars and init containers come with id, image, restarts and bounds."""
    server, sidecar, fetch = one().containers
    assert [server.name, sidecar.name, fetch.name] == ["server", "sidecar", "fetch"]
    assert server.id == container_id("vllm-a")
    assert (server.ready, server.restarts) == (True, 2)
    assert server.image == Image(
        "registry.local:5000/team/vllm", "v0.9.1", "registry.local/server@sha256:" + "cd" * 32
    )
    assert server.amounts == {
        "cpu.limit.desired": 4.0,
        "memory.limit.desired": 16 * 2**30,
        "cpu.request.desired": 3.5,
        "memory.request.desired": 16 * 2**30,
        "cpu.limit.current": 2.0,
        "memory.limit.current": 16 * 2**30,
        "cpu.request.current": 2.0,
    }
    assert sidecar.amounts == {"cpu.request.desired": 0.1}


def test_container_that_is_being_made() -> None:
    """What the kubelet does not say yet is unknown, not 0."""
    [server, *_] = one(containerStatuses=None, conditions=None, startTime=None).containers
    assert (server.id, server.ready, server.restarts) == ("", None, None)
    assert one(conditions=None).ready is None
    assert one(conditions=[{"type": "Ready", "status": "Unknown"}]).ready is None
    assert one(conditions=[{"type": "Ready", "status": "False"}]).ready is False


@pytest.mark.parametrize(
    ("reference", "template_hash", "expected"),
    [
        ({"kind": "ReplicaSet", "name": "vllm-7c9d"}, "7c9d", ("ReplicaSet", "vllm-7c9d", "vllm")),
        ({"kind": "ReplicaSet", "name": "by-hand"}, "7c9d", ("ReplicaSet", "by-hand", "")),
        ({"kind": "ReplicaSet", "name": "by-hand"}, "", ("ReplicaSet", "by-hand", "")),
        ({"kind": "StatefulSet", "name": "db"}, "", ("StatefulSet", "db", "")),
        ({"kind": "Foo", "name": "x", "controller": False}, "", ("", "", "")),
    ],
)
def test_owner(reference: dict[str, object], template_hash: str, expected: tuple[str, ...]) -> None:
    """A deployment is named only where the template's hash proves it; nothing is guessed."""
    references = [{"controller": True, **reference}]
    owner = one(ownerReferences=references, labels={"pod-template-hash": template_hash}).owner
    assert (owner.kind, owner.name, owner.deployment) == expected


def test_labels_are_those_allowed() -> None:
    """No label is kept that nobody asked for."""
    assert one().labels == {}
    [found] = listed(pod("vllm-a"), labels=("team", "absent")).pods
    assert found.labels == {"team": "search"}


def test_static_pod_is_known_by_its_hash() -> None:
    """The cgroup of a static pod bears the hash of its manifest."""
    annotations = {"kubernetes.io/config.hash": "0123456789abcdef0123456789abcdef"}
    assert one(annotations=annotations).config_hash == "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"Unauthorized",
        b"[]",
        b"{}",
        b'{"kind":"Status","items":[]}',
        b'{"kind":"PodList","items":{}}',
        b"\xff\xfe\x00",
        b'{"kind":"PodList","items":[{"metadata":',
        b'{"kind":"PodList","items":[1,2]}',
        b'{"kind":"PodList","items":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
    ],
)
def test_garbage_is_refused(body: bytes) -> None:
    """What is no list of pods is an error that says so."""
    with pytest.raises(KubeletError, match="no list of pods") as caught:
        read_pods(body)
    assert caught.value.remedy


def test_empty_node() -> None:
    """A node without pods has none; Go writes its empty list as null."""
    assert read_pods(b'{"kind":"PodList","items":null}') == PodList(())


def test_bad_pod_leaves_the_others() -> None:
    """A pod that cannot be understood is counted."""
    found = listed(pod("a"), {"metadata": {"uid": 7}}, {"metadata": {"name": "x"}}, 3, pod("b"))
    assert [one.name for one in found.pods] == ["a", "b"]
    assert (found.unreadable, found.too_many) == (3, 0)


@settings(max_examples=200, deadline=None)
@given(st.lists(_JSON, max_size=3), _JSON, st.sampled_from(("metadata", "spec", "status")))
def test_any_json_is_read_or_counted(items: list[object], part: object, key: str) -> None:
    """Whatever a pod holds in place of what it should, it is read or counted, and the next one is read."""
    odd = pod("a")
    odd[key] = part
    found = listed(*items, odd, pod("b"))
    assert "b" in {one.name for one in found.pods}
    assert len(found.pods) + found.unreadable + found.too_many == len(items) + 2


def test_too_many_pods() -> None:
    """Of 10 000 pods the bound is kept, those that have finished go first, the rest is counted."""
    phases = ["Succeeded"] * 3000 + ["Running"] * 7000
    pods = [
        {
            "metadata": {"name": f"p{i}", "namespace": "x", "uid": f"u{i}"},
            "status": {"phase": phase},
        }
        for i, phase in enumerate(phases)
    ]
    found = listed(*pods, max_pods=1024)
    assert len(found.pods) == 1024
    assert {one.phase for one in found.pods} == {"Running"}
    assert found.too_many == 10_000 - 1024


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2.0), ("500m", 0.5), ("1.5", 1.5), (".5", 0.5), ("5.", 5.0), ("100u", 1e-4),
        ("7n", 7e-9), ("1k", 1e3), ("2M", 2e6), ("3G", 3e9), ("1Ki", 1024.0), ("2Mi", 2.0**21),
        ("16Gi", 2.0**34), ("1Ti", 2.0**40), ("1E", 1e18), ("1e3", 1e3), ("1E3", 1e3),
        ("12e-1", 1.2), ("-1", -1.0), ("", None), ("Gi", None), ("1 Gi", None), ("1KiB", None),
        ("0x10", None), ("1m5", None), ("nan", None), ("inf", None), ("1e9999", None),
    ],
)  # fmt: skip
def test_quantities(text: str, value: float | None) -> None:
    """Every suffix of Kubernetes is known, and nothing else passes for a number."""
    assert parse_quantity(text) == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize(
    ("reference", "name", "tag"),
    [
        ("vllm", "vllm", ""),
        ("vllm:1", "vllm", "1"),
        ("registry:5000/vllm", "registry:5000/vllm", ""),
        ("registry:5000/vllm:1@sha256:ab", "registry:5000/vllm", "1"),
        ("", "", ""),
    ],
)
def test_images(reference: str, name: str, tag: str) -> None:
    """A registry's port is no tag."""
    assert read_image(reference) == Image(name, tag)
