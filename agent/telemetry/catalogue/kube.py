"""Metrics of pods, through the kubelet, and of who uses which GPU."""

from agent.telemetry.keys import (
    CONTAINER_NAME,
    DEPLOYMENT,
    DEVICE_RESOURCE,
    DEVICE_STATE,
    GPU_KNOWN_BY,
    HW_ID,
    KUBE_SOURCE,
    NAMESPACE,
    NODE_NAME,
    OUTCOME,
    OWNER_KIND,
    OWNER_NAME,
    POD_NAME,
    POD_PHASE,
    POD_UID,
    QOS_CLASS,
)
from agent.telemetry.metric import Kind, Metric

POD = (POD_UID, POD_NAME, NAMESPACE)
CONTAINER = (*POD, CONTAINER_NAME)


def _amount(what: str, unit: str, bound: str, which: str) -> Metric:
    """Return a bound on a container's CPUs or bytes, as its pod says (desired) or as it runs (current)."""
    said = "asked for by its pod" if which == "desired" else "in force"
    text = f"{what.capitalize()} {bound} of a container, {said}; absent where there is none."
    return Metric(f"k8s.container.{what}.{bound}.{which}", unit, Kind.UP_DOWN, text, CONTAINER)


METRICS: tuple[Metric, ...] = (
    Metric(
        "k8s.pod.status.phase",
        "{pod}",
        Kind.UP_DOWN,
        "1 for the phase that a pod is in.",
        (*POD, POD_PHASE),
    ),
    Metric("tailcause.k8s.pod.ready", "1", Kind.GAUGE, "1 when a pod may serve, else 0.", POD),
    Metric("k8s.pod.uptime", "s", Kind.GAUGE, "Time since the kubelet took a pod on.", POD),
    Metric(
        "tailcause.k8s.pod.info",
        "1",
        Kind.GAUGE,
        "1, with the node, quality of service and owner of a pod that has not finished.",
        (*POD, NODE_NAME, QOS_CLASS, OWNER_KIND, OWNER_NAME, DEPLOYMENT),
    ),
    Metric(
        "k8s.container.ready",
        "{container}",
        Kind.UP_DOWN,
        "1 when a container passes its readiness probe, else 0.",
        CONTAINER,
    ),
    Metric(
        "k8s.container.restart.count",
        "{restart}",
        Kind.UP_DOWN,
        "Restarts of a container, as far back as the kubelet remembers.",
        CONTAINER,
    ),
    *(
        _amount(what, unit, bound, which)
        for what, unit in (("cpu", "{cpu}"), ("memory", "By"))
        for bound in ("limit", "request")
        for which in ("desired", "current")
    ),
    Metric(
        "tailcause.gpu.assignment",
        "1",
        Kind.GAUGE,
        "1 for each container that uses a GPU or MIG instance; several share one under time-slicing.",
        (*CONTAINER, HW_ID, GPU_KNOWN_BY),
    ),
    Metric(
        "tailcause.k8s.device.count",
        "{device}",
        Kind.UP_DOWN,
        "Devices that pods can ask for, and those given to some.",
        (DEVICE_RESOURCE, DEVICE_STATE),
    ),
    Metric(
        "tailcause.kube.age",
        "s",
        Kind.GAUGE,
        "Time since a source of pods last gave a good answer.",
        (KUBE_SOURCE,),
    ),
    Metric(
        "tailcause.kube.answers",
        "{answer}",
        Kind.COUNTER,
        "Answers of a source of pods, by what they were.",
        (KUBE_SOURCE, OUTCOME),
    ),
)
