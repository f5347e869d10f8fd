"""The catalogue: every metric the product emits.

Names follow the OpenTelemetry semantic conventions (v1.44) where one exists; the rest carry our
own prefix `tailcause.`. Units are UCUM. The tables are in `agent.telemetry.catalogue`, the attribute keys in
`agent.telemetry.keys`.
"""

from agent.telemetry.catalogue import agent, cgroup, gpu, kernel, system
from agent.telemetry.metric import Metric

METRICS: tuple[Metric, ...] = (
    *system.METRICS,
    *cgroup.METRICS,
    *gpu.METRICS,
    *kernel.METRICS,
    *agent.METRICS,
)

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
