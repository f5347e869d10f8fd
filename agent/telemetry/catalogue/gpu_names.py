"""What the metrics of GPUs have in common: their attributes, and the names that DCGM's dashboards know.

Source of those names and their units: dcgm-exporter's `etc/dcp-metrics-included.csv`.
"""

from agent.telemetry.keys import (
    CONTAINER_NAME,
    ERROR_TYPE,
    GPU_CLOCK,
    GPU_INDEX,
    GPU_INSTANCE,
    GPU_PCI,
    GPU_PIPE,
    GPU_PROFILE,
    GPU_TASK,
    HOST_NAME,
    HW_ID,
    HW_MODEL,
    HW_NAME,
    HW_PARENT,
    HW_SENSOR,
    NAMESPACE,
    POD_NAME,
    POD_UID,
    REASON,
)
from agent.telemetry.metric import Alias

GPU = (HW_ID, HW_NAME, HW_PARENT)

DCGM_LABELS = (
    (GPU_INDEX, "gpu"),
    (HW_ID, "UUID"),
    (HW_PARENT, "UUID"),
    (GPU_PCI, "pci_bus_id"),
    (HW_NAME, "device"),
    (HW_MODEL, "modelName"),
    (GPU_PROFILE, "GPU_I_PROFILE"),
    (GPU_INSTANCE, "GPU_I_ID"),
    (HOST_NAME, "Hostname"),
    (CONTAINER_NAME, "container"),
    (NAMESPACE, "namespace"),
    (POD_NAME, "pod"),
    (POD_UID, "pod_uid"),
)
"""dcgm-exporter's labels; the UUID is that of the whole GPU, for a MIG instance too.

What a sample lacks comes from the info of its GPU, the host's name from the resource.
"""


def dcgm(name: str, factor: float = 1.0, **where: str) -> Alias:
    """Return a name of DCGM; `where` names our attributes by a short word."""
    keys = {
        "task": GPU_TASK, "error": ERROR_TYPE, "reason": REASON, "clock": GPU_CLOCK,
        "pipe": GPU_PIPE, "sensor": HW_SENSOR,
    }  # fmt: skip
    attributes = tuple((keys[word], value) for word, value in where.items())
    return Alias(f"DCGM_FI_{name}", attributes, DCGM_LABELS, factor)
