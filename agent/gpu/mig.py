"""The instances of a GPU in MIG mode.

Source: NVML API reference, "Multi Instance GPU Management"; NVIDIA MIG User Guide, "Device Names" (the profile's name).
"""

import math
from dataclasses import replace
from typing import Any

from agent.gpu.identity import Identity, text

_MIB = 1 << 20
_GIB = 1 << 30


def instances(nvml: Any, device: Any, gpu: Identity) -> list[tuple[Any, Identity]]:
    """Return handle and identity of each instance, none where MIG is off or unknown to the GPU."""
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(device)
        if current != nvml.NVML_DEVICE_MIG_ENABLE:
            return []
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(device)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return []
    found = []
    for index in range(count):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
            found.append((handle, _identify(nvml, device, handle, gpu)))
        except (nvml.NVMLError_NotFound, nvml.NVMLError_InvalidArgument):
            continue  # places in the table may be empty
    return found


def gpu_instance(identity: Identity) -> int | None:
    """Return the number of the GPU instance that an identity's MIG device belongs to."""
    return int(identity.instance) if identity.instance else None


def _identify(nvml: Any, device: Any, handle: Any, gpu: Identity) -> Identity:
    return replace(
        gpu,
        uuid=text(nvml.nvmlDeviceGetUUID(handle)),
        parent=gpu.uuid,
        profile=_profile(nvml, device, handle),
        instance=str(nvml.nvmlDeviceGetGpuInstanceId(handle)),
    )


def _profile(nvml: Any, device: Any, handle: Any) -> str:
    """Return the profile as the driver names it, or as its slices and its memory make it; empty if neither is told."""
    try:
        _, marked, profile = text(nvml.nvmlDeviceGetName(handle)).rpartition(" MIG ")
        return profile if marked else _by_slices(nvml, device, handle)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return ""


def _by_slices(nvml: Any, device: Any, handle: Any) -> str:
    """Return the name by slices: of compute where they are not all of the instance's, of the instance, gigabytes.

    An instance has eighths of the memory, and the name counts them of the whole as it is sold.
    """
    attributes = nvml.nvmlDeviceGetAttributes_v2(handle)
    of_gpu, of_compute = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
    total = nvml.nvmlDeviceGetMemoryInfo(device).total
    eighths = math.ceil(attributes.memorySizeMB * _MIB / total * 8)
    gigabytes = round(eighths / 8 * math.ceil(total / _GIB))
    compute = f"{of_compute}c." if of_compute != of_gpu else ""
    return f"{compute}{of_gpu}g.{gigabytes}gb"
