"""Pods of this node through the kubelet: phase, restarts, limits, and who uses which GPU."""

from collections.abc import Iterator
from typing import ClassVar

from agent.collectors.base import CollectorContext, NoData
from agent.kube.directory import Pods
from agent.kube.errors import KubeletError
from agent.kube.model import Container, Pod
from agent.kube.poll import KUBELET, Poll
from agent.telemetry.keys import (
    CONTAINER_NAME,
    DEPLOYMENT,
    DEVICE_RESOURCE,
    DEVICE_STATE,
    GPU_KNOWN_BY,
    HW_ID,
    NAMESPACE,
    NODE_NAME,
    OWNER_KIND,
    OWNER_NAME,
    POD_NAME,
    POD_PHASE,
    POD_UID,
    QOS_CLASS,
)
from agent.telemetry.model import Sample, SignalState

_AMOUNTS = tuple(
    f"{what}.{bound}.{which}"
    for what in ("cpu", "memory")
    for bound in ("limit", "request")
    for which in ("desired", "current")
)
_PHASE = "k8s.pod.status.phase"
_READY = "tailcause.k8s.pod.ready"
_UPTIME = "k8s.pod.uptime"
_INFO = "tailcause.k8s.pod.info"
_CONTAINER_READY = "k8s.container.ready"
_RESTARTS = "k8s.container.restart.count"
_ASSIGNMENT = "tailcause.gpu.assignment"
_DEVICES = "tailcause.k8s.device.count"
_SEVERITY = (SignalState.NO_PERMISSION, SignalState.HUNG, SignalState.FAILED)
_REMEDY = "in a cluster, give --kubelet https://NODE:10250 (see Kubernetes in the agent's README)"

_Value = tuple[str, float, dict[str, str]]


class KubeCollector:
    """Asks the kubelet every few seconds, and returns its last answer in between.

    Half an answer is `NoData` with the samples of the half that came.
    """

    METRICS: ClassVar[tuple[str, ...]] = (
        *(_PHASE, _READY, _UPTIME, _INFO, _CONTAINER_READY, _RESTARTS, _ASSIGNMENT, _DEVICES),
        *(f"k8s.container.{amount}" for amount in _AMOUNTS),
    )

    def __init__(self, context: CollectorContext) -> None:
        self._context = context
        self._pods = context.pods
        self._poll = Poll(context.kube, context.pods, context.paths)
        self._samples: list[Sample] = []

    def collect(self) -> list[Sample]:
        """Return the samples of the last answers; raises `NoData` while a source gives none."""
        if not self._context.kube.configured:
            raise NoData("no kubelet is configured", SignalState.DISABLED, remedy=_REMEDY)
        if self._poll.ask():
            self._samples = list(self._read())
        problems = self._poll.problems
        if problems:
            raise _told(problems, self._samples)
        if not self._samples:
            raise NoData("the kubelet lists no pods", remedy="it is asked again by itself")
        return self._samples

    def close(self) -> None:
        """Let the kubelet go."""
        self._poll.close()

    def _read(self) -> Iterator[Sample]:
        now = self._context.now_unix_ns()
        if KUBELET not in self._poll.problems:
            for pod in self._pods.pods:
                for metric, value, attributes in _of_pod(pod, now / 1e9):
                    yield Sample(metric, float(value), now, attributes)
        for metric, value, attributes in (*_of_devices(self._pods), *self._counts()):
            yield Sample(metric, value, now, attributes)

    def _counts(self) -> Iterator[_Value]:
        allocation = self._poll.allocation
        for state, counts in (
            ("allocatable", allocation.to_give()),
            ("allocated", allocation.given()),
        ):
            for resource, count in counts.items():
                yield _DEVICES, count, {DEVICE_RESOURCE: resource, DEVICE_STATE: state}


def _told(problems: dict[str, KubeletError], samples: list[Sample]) -> NoData:
    """Return the problems as one: the state of the gravest, the reasons of all."""
    states = [problem.outcome for problem in problems.values()]
    state = next((one for one in _SEVERITY if one in states), SignalState.NOT_SUPPORTED)
    reason = "; ".join(problem.reason for problem in problems.values())
    remedy = "; ".join(dict.fromkeys(problem.remedy for problem in problems.values()))
    return NoData(reason, state, remedy=remedy, samples=samples)


def _of_pod(pod: Pod, now_s: float) -> Iterator[_Value]:
    identity = {POD_UID: pod.uid, POD_NAME: pod.name, NAMESPACE: pod.namespace}
    if pod.phase:
        yield _PHASE, 1, {**identity, POD_PHASE: pod.phase}
    if pod.finished:
        return
    yield _INFO, 1, {**identity, **_about(pod)}
    if pod.ready is not None:
        yield _READY, pod.ready, identity
    if pod.start_unix_s is not None:
        yield _UPTIME, max(0.0, now_s - pod.start_unix_s), identity
    for container in pod.containers:
        for metric, value in _of_container(container):
            yield metric, value, {**identity, CONTAINER_NAME: container.name}


def _about(pod: Pod) -> dict[str, str]:
    about = {
        NODE_NAME: pod.node,
        QOS_CLASS: pod.qos_class,
        OWNER_KIND: pod.owner.kind,
        OWNER_NAME: pod.owner.name,
        DEPLOYMENT: pod.owner.deployment,
    }
    return {key: value for key, value in about.items() if value}


def _of_container(container: Container) -> Iterator[tuple[str, float]]:
    if container.ready is not None:
        yield _CONTAINER_READY, container.ready
    if container.restarts is not None:
        yield _RESTARTS, container.restarts
    for amount, value in container.amounts.items():
        yield f"k8s.container.{amount}", value


def _of_devices(pods: Pods) -> Iterator[_Value]:
    for device in pods.devices():
        for use in pods.users(device):
            keys = {
                HW_ID: device,
                POD_UID: use.pod_uid,
                POD_NAME: use.pod,
                NAMESPACE: use.namespace,
                CONTAINER_NAME: use.container,
                GPU_KNOWN_BY: use.how,
            }
            yield _ASSIGNMENT, 1, {key: value for key, value in keys.items() if value}
