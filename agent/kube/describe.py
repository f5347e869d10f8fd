"""What is known of a pod, as attributes of spans.

Source: OpenTelemetry semantic conventions v1.44, "Kubernetes" and "Container" attributes.
"""

from collections.abc import Iterator, Mapping

from opentelemetry.proto.resource.v1 import resource_pb2

from agent.kube.directory import Pods
from agent.kube.model import Container, Member, Pod
from agent.telemetry.keys import (
    CGROUP,
    CONTAINER_ID,
    CONTAINER_NAME,
    DEPLOYMENT,
    GPU_IDS,
    IMAGE_ID,
    IMAGE_NAME,
    IMAGE_TAGS,
    NAMESPACE,
    NODE_NAME,
    POD_LABEL_PREFIX,
    POD_NAME,
    POD_UID,
)

OWNER_KEYS = {
    "DaemonSet": "k8s.daemonset.name",
    "Job": "k8s.job.name",
    "ReplicaSet": "k8s.replicaset.name",
    "StatefulSet": "k8s.statefulset.name",
}


def describe(resource: resource_pb2.Resource, pods: Pods) -> bool:
    """Add what is known of the pod that a resource names; tell whether its cgroup is known, too.

    A resource names its pod by container id, pod uid, or namespace and name; the container is the
    one that it names, or the only one that serves. What it says itself is kept.
    """
    if pods.empty:
        return False
    said = {pair.key: pair.value.string_value for pair in resource.attributes}
    member = _named_by(said, pods)
    if member is None:
        return False
    for key, value in _of_member(member, pods):
        if key not in said and value:
            _add(resource, key, value)
    return member.container is not None and bool(pods.cgroup(member.container.id))


def _named_by(said: Mapping[str, str], pods: Pods) -> Member | None:
    member = pods.member(said.get(CONTAINER_ID, ""), said.get(POD_UID, ""))
    if member is None and said.get(POD_NAME) and said.get(NAMESPACE):
        pod = pods.named(said[NAMESPACE], said[POD_NAME])
        member = Member(pod) if pod and said.get(POD_UID, pod.uid) == pod.uid else None
    if member is None or member.container is not None:
        return member
    return Member(member.pod, _container(member.pod, said.get(CONTAINER_NAME, "")))


def _container(pod: Pod, name: str) -> Container | None:
    if name:
        return pod.container(name)
    serving = [one for one in pod.containers if one.serves]
    return serving[0] if len(serving) == 1 else None


def _of_member(member: Member, pods: Pods) -> Iterator[tuple[str, str | tuple[str, ...]]]:
    pod, container = member.pod, member.container
    yield POD_UID, pod.uid
    yield POD_NAME, pod.name
    yield NAMESPACE, pod.namespace
    yield NODE_NAME, pod.node
    if pod.owner.kind in OWNER_KEYS:
        yield OWNER_KEYS[pod.owner.kind], pod.owner.name
    yield DEPLOYMENT, pod.owner.deployment
    for key, value in pod.labels.items():
        yield f"{POD_LABEL_PREFIX}{key}", value
    yield GPU_IDS, pods.devices_of(member)
    if container is not None:
        yield CONTAINER_NAME, container.name
        yield CONTAINER_ID, container.id
        yield CGROUP, pods.cgroup(container.id)
        yield IMAGE_NAME, container.image.name
        yield IMAGE_TAGS, (container.image.tag,) if container.image.tag else ()
        yield IMAGE_ID, container.image.id


def _add(resource: resource_pb2.Resource, key: str, value: str | tuple[str, ...]) -> None:
    pair = resource.attributes.add()
    pair.key = key
    if isinstance(value, str):
        pair.value.string_value = value
        return
    for one in value:
        pair.value.array_value.values.add().string_value = one
