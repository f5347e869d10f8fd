"""The catalogue: every metric the product emits.

Names follow the OpenTelemetry semantic conventions (v1.44) where one exists; the rest carry our
own prefix `tailcause.`. Units are UCUM. The tables are in `agent.telemetry.catalogue`, the attribute keys in
`agent.telemetry.keys`.
"""

import msgspec

from agent.telemetry.catalogue import (
    agent,
    cgroup,
    gpu,
    gpu_health,
    kernel,
    kube,
    out,
    process,
    servers,
    spans,
    system,
)
from agent.telemetry.keys import CONTAINER_ID, CONTAINER_NAME, HW_ID, NAMESPACE, POD_NAME, POD_UID
from agent.telemetry.metric import Metric

POD_KEYS = (POD_NAME, NAMESPACE, CONTAINER_NAME)


def _with_pod(metric: Metric) -> Metric:
    """Return the metric of a container or GPU with the attributes of its pod: they are added where known."""
    if not {CONTAINER_ID, HW_ID} & set(metric.attributes):
        return metric
    keys = (*POD_KEYS, POD_UID) if HW_ID in metric.attributes else POD_KEYS
    attributes = tuple(dict.fromkeys((*metric.attributes, *keys)))
    return msgspec.structs.replace(metric, attributes=attributes)


_TABLES: tuple[Metric, ...] = (
    *system.METRICS,
    *cgroup.METRICS,
    *process.METRICS,
    *gpu.METRICS,
    *gpu_health.METRICS,
    *kernel.METRICS,
    *agent.METRICS,
    *out.METRICS,
    *spans.METRICS,
    *kube.METRICS,
    *servers.METRICS,
)

METRICS: tuple[Metric, ...] = tuple(_with_pod(metric) for metric in _TABLES)

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
