"""The names of pods on the samples of containers, cgroups and GPUs: once per export, in one place."""

from collections.abc import Mapping, Sequence

import msgspec

from agent.host.containers import identify
from agent.kube.directory import Pods
from agent.telemetry.keys import (
    CGROUP,
    CONTAINER_ID,
    CONTAINER_NAME,
    HW_ID,
    NAMESPACE,
    POD_NAME,
    POD_UID,
)
from agent.telemetry.model import Attributes, Sample

_NOTHING: Attributes = {}


def label(samples: Sequence[Sample], pods: Pods) -> list[Sample]:
    """Return samples with the pod's name on those of a container, a pod's cgroup, or a GPU.

    A GPU that several pods share bears no name: `tailcause.gpu.assignment` lists them.
    """
    if pods.empty:
        return list(samples)
    labeller = _Labeller(pods)
    return [labeller.label(sample) for sample in samples]


class _Labeller:
    """Looks each container, cgroup and device up once."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods
        self._known: dict[str, Attributes] = {}

    def label(self, sample: Sample) -> Sample:
        """Return the sample, with the attributes of its pod if it has none."""
        attributes = sample.attributes
        if POD_NAME in attributes:
            return sample
        for key in (CONTAINER_ID, CGROUP, HW_ID):
            value = attributes.get(key)
            if isinstance(value, str):
                found = self._found(key, value)
                if not found:
                    return sample
                return msgspec.structs.replace(sample, attributes={**attributes, **found})
        return sample

    def _found(self, key: str, value: str) -> Attributes:
        known = self._known.get(value)
        if known is None:
            known = self._known[value] = self._look_up(key, value)
        return known

    def _look_up(self, key: str, value: str) -> Attributes:
        if key == HW_ID:
            return _of_device(self._pods, value)
        identity = identify(value) if key == CGROUP else None
        member = (
            self._pods.member(identity.container_id, identity.pod_uid)
            if identity
            else self._pods.member(value)
        )
        if member is None:
            return _NOTHING
        name = member.container.name if member.container else ""
        return _short(member.pod.name, member.pod.namespace, name)


def _of_device(pods: Pods, device: str) -> Attributes:
    users = pods.users(device)
    if len({(use.namespace, use.pod) for use in users}) != 1:
        return _NOTHING
    names = {use.container for use in users}
    attributes = _short(users[0].pod, users[0].namespace, names.pop() if len(names) == 1 else "")
    return attributes | _some({POD_UID: users[0].pod_uid})


def _short(pod: str, namespace: str, container: str) -> dict[str, str]:
    return _some({POD_NAME: pod, NAMESPACE: namespace, CONTAINER_NAME: container})


def _some(attributes: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in attributes.items() if value}
