"""The kubelet's answer to `/pods`, a `v1.PodList` in JSON, as pods.

Source: Kubernetes API reference, "Pod v1 core"; "Well-known labels" for `pod-template-hash`.
"""

import ipaddress
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

import msgspec

from agent.kube.errors import KubeletError
from agent.kube.model import Container, Image, MetricsPage, Owner, Pod
from agent.kube.quantity import parse_quantity
from agent.telemetry.model import SignalState

_TEMPLATE_HASH = "pod-template-hash"
_AMOUNTS = ("cpu", "memory")
_Amounts = dict[str, str | int | float] | None


class _Resources(msgspec.Struct):
    limits: _Amounts = None
    requests: _Amounts = None


class _OwnerReference(msgspec.Struct):
    kind: str = ""
    name: str = ""
    controller: bool | None = False


class _Annotations(msgspec.Struct):
    config_hash: str = msgspec.field(name="kubernetes.io/config.hash", default="")
    scrape: str = msgspec.field(name="prometheus.io/scrape", default="")
    scheme: str = msgspec.field(name="prometheus.io/scheme", default="http")
    port: str = msgspec.field(name="prometheus.io/port", default="")
    path: str = msgspec.field(name="prometheus.io/path", default="/metrics")


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: _Annotations | None = None
    owner_references: list[_OwnerReference] | None = None


class _ContainerSpec(msgspec.Struct):
    name: str = ""
    image: str = ""
    resources: _Resources | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    host_network: bool | None = None
    containers: list[_ContainerSpec] | None = None
    init_containers: list[_ContainerSpec] | None = None
    ephemeral_containers: list[_ContainerSpec] | None = None


class _ContainerStatus(msgspec.Struct, rename="camel"):
    name: str = ""
    container_id: str = msgspec.field(name="containerID", default="")
    image_id: str = msgspec.field(name="imageID", default="")
    ready: bool | None = None
    restart_count: int | None = None
    resources: _Resources | None = None


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    qos_class: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    start_time: datetime | None = None
    conditions: list[_Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    ephemeral_container_statuses: list[_ContainerStatus] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _PodList(msgspec.Struct):
    items: list[msgspec.Raw] | None
    kind: str = ""


_LIST = msgspec.json.Decoder(_PodList)
_POD = msgspec.json.Decoder(_Pod)
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True)
class PodList:
    """The pods that were read, and how many were not: more than the bound, or not understood."""

    pods: tuple[Pod, ...]
    too_many: int = 0
    unreadable: int = 0


def read_pods(body: bytes, labels: Collection[str] = (), max_pods: int = 1024) -> PodList:
    """Return the pods of a body; over the bound, finished pods are left out first.

    Raises `KubeletError` for a body that is no list of pods; a pod that cannot be understood is
    counted and leaves the others.
    """
    items = _items(body)
    kept: dict[bool, list[Pod]] = {False: [], True: []}
    unreadable = 0
    for item in items:
        pod = _read(item, labels)
        if pod is None:
            unreadable += 1
        elif len(kept[pod.finished]) < max_pods:
            kept[pod.finished].append(pod)
    if unreadable and unreadable == len(items):
        raise _no_list("none of its pods can be understood")
    pods = tuple([*kept[False], *kept[True]][:max_pods])
    return PodList(pods, len(items) - unreadable - len(pods), unreadable)


def _items(body: bytes) -> list[msgspec.Raw]:
    try:
        answer = _LIST.decode(body)
    except _MALFORMED as exc:
        raise _no_list(str(exc)) from exc
    if answer.kind != "PodList":
        raise _no_list(f"its kind is {answer.kind!r}")
    return answer.items or []


def _no_list(why: str) -> KubeletError:
    remedy = "is this address the kubelet's? its pods are at https://NODE:10250/pods"
    return KubeletError(f"the answer is no list of pods ({why})", SignalState.FAILED, remedy)


def _read(item: msgspec.Raw, labels: Collection[str]) -> Pod | None:
    try:
        pod = _POD.decode(item)
    except _MALFORMED:
        return None
    meta, status = pod.metadata, pod.status
    if not (meta.uid and meta.name and meta.namespace):
        return None
    own_labels = meta.labels or {}
    return Pod(
        meta.uid,
        meta.name,
        meta.namespace,
        pod.spec.node_name,
        status.phase,
        _ready(status),
        status.qos_class,
        status.start_time.timestamp() if status.start_time else None,
        _owner(meta, own_labels.get(_TEMPLATE_HASH, "")),
        meta.annotations.config_hash if meta.annotations else "",
        {key: own_labels[key] for key in labels if key in own_labels},
        tuple(_containers(pod)),
        _page(meta.annotations, pod) if meta.annotations else None,
    )


def _page(said: _Annotations, pod: _Pod) -> MetricsPage | None:
    """Return the page that a pod's annotations name, if they do and it has an address; anybody may write them."""
    if said.scrape.lower() != "true" or said.scheme != "http" or not said.port.isascii():
        return None
    port = int(said.port) if said.port.isdigit() and len(said.port) <= 5 else 0
    path_ok = said.path.startswith("/") and said.path.isascii() and said.path.isprintable()
    if not 0 < port <= 65535 or not path_ok or set(said.path) & set(" ?#"):
        return None
    try:
        address = str(ipaddress.ip_address(pod.status.pod_ip))
    except ValueError:
        return None
    return MetricsPage(address, port, said.path, bool(pod.spec.host_network))


def _ready(status: _Status) -> bool | None:
    said = [one.status for one in status.conditions or () if one.type == "Ready"]
    return said[0] == "True" if said and said[0] != "Unknown" else None


def _owner(meta: _Metadata, template_hash: str) -> Owner:
    """Return the controller; a deployment names its ReplicaSets after itself and the template's hash."""
    for reference in meta.owner_references or ():
        if reference.controller:
            suffix = f"-{template_hash}"
            is_deployed = reference.kind == "ReplicaSet" and template_hash
            deployment = reference.name.removesuffix(suffix) if is_deployed else ""
            if deployment == reference.name:
                deployment = ""
            return Owner(reference.kind, reference.name, deployment)
    return Owner()


def _containers(pod: _Pod) -> Iterator[Container]:
    spec, status = pod.spec, pod.status
    groups = (
        (spec.containers, status.container_statuses, True),
        (spec.init_containers, status.init_container_statuses, False),
        (spec.ephemeral_containers, status.ephemeral_container_statuses, False),
    )
    for specs, statuses, serves in groups:
        by_name = {one.name: one for one in statuses or ()}
        for one in specs or ():
            yield _container(one, by_name.get(one.name, _ContainerStatus()), serves=serves)


def _container(spec: _ContainerSpec, status: _ContainerStatus, *, serves: bool) -> Container:
    amounts = dict(_amounts(spec.resources, "desired"))
    amounts.update(_amounts(status.resources, "current"))
    return Container(
        spec.name,
        status.container_id.rpartition("://")[2],
        serves,
        read_image(spec.image, status.image_id),
        status.ready,
        status.restart_count,
        amounts,
    )


def _amounts(resources: _Resources | None, which: str) -> Iterator[tuple[str, float]]:
    if resources is None:
        return
    for bound, given in (("limit", resources.limits), ("request", resources.requests)):
        for name in _AMOUNTS:
            amount = parse_quantity(str((given or {}).get(name, "")))
            if amount is not None:
                yield f"{name}.{bound}.{which}", amount


def read_image(reference: str, image_id: str = "") -> Image:
    """Return name and tag of an image reference such as `registry:5000/vllm:v0.9@sha256:…`.

    Source: OCI distribution specification, "Pulling manifests": a tag has no slash.
    """
    name = reference.partition("@")[0]
    base, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        base, tag = name, ""
    return Image(base, tag, image_id.rpartition("://")[2])
