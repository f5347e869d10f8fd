"""GPU performance monitoring: the share of time in which the units of a chip were at work.

Source: NVML API reference, "GPM Functions": a metric is taken from two samples, 100 ms apart or more.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from agent.gpu.fields import PERCENT, Value
from agent.telemetry.keys import GPU_PIPE

_METRICS = (
    ("GRAPHICS_UTIL", {GPU_PIPE: "graphics"}),
    ("SM_UTIL", {GPU_PIPE: "sm"}),
    ("SM_OCCUPANCY", {GPU_PIPE: "occupancy"}),
    ("ANY_TENSOR_UTIL", {GPU_PIPE: "tensor"}),
    ("DRAM_BW_UTIL", {GPU_PIPE: "dram"}),
    ("FP64_UTIL", {GPU_PIPE: "fp64"}),
    ("FP32_UTIL", {GPU_PIPE: "fp32"}),
    ("FP16_UTIL", {GPU_PIPE: "fp16"}),
)
_APART_S = 0.1


class Gpm:
    """The activity of a GPU, or of one of its GPU instances, between two collections."""

    def __init__(
        self,
        nvml: Any,
        instance: int | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._instance = instance
        self._monotonic_s = monotonic_s
        self._samples: list[Any] = []
        self._taken_s = float("-inf")
        self._request = _request(nvml)

    def read(self, nvml: Any, device: Any) -> Iterator[Value]:
        """Yield the activity since the last call, nothing at the first; raises `NVMLError` without GPM."""
        if not self._samples:
            if not nvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice:
                raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
            self._samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
            self._take(nvml, device, self._samples[1])
            return
        if self._monotonic_s() - self._taken_s < _APART_S:
            return
        before, now = self._samples[1], self._samples[0]
        self._take(nvml, device, now)
        self._samples = [before, now]
        self._request.sample1, self._request.sample2 = before, now
        nvml.nvmlGpmMetricsGet(self._request)
        for index, (_, attributes) in enumerate(_METRICS):
            found = self._request.metrics[index]
            if found.nvmlReturn == nvml.NVML_SUCCESS and not math.isnan(found.value):
                yield "tailcause.gpu.activity", found.value * PERCENT, attributes

    def _take(self, nvml: Any, device: Any, sample: Any) -> None:
        if self._instance is None:
            nvml.nvmlGpmSampleGet(device, sample)
        else:
            nvml.nvmlGpmMigSampleGet(device, self._instance, sample)
        self._taken_s = self._monotonic_s()

    def close(self, nvml: Any) -> None:
        """Free the samples."""
        while self._samples:
            try:
                nvml.nvmlGpmSampleFree(self._samples.pop())
            except nvml.NVMLError:
                continue  # the driver has gone, and the samples with it


def _request(nvml: Any) -> Any:
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version = nvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(_METRICS)
    for index, (constant, _) in enumerate(_METRICS):
        request.metrics[index].metricId = getattr(nvml, f"NVML_GPM_METRIC_{constant}")
    return request
