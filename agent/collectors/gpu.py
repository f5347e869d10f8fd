"""GPUs through NVML: utilisation, memory, power, energy, temperature, clocks, throttled time.

Source: NVML API reference, "Device Queries"; names of OpenTelemetry's hardware metrics.
"""

import ctypes
import importlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from agent.collectors.base import CollectorContext, NoData
from agent.errors import AgentError
from agent.telemetry.keys import GPU_TASK, HW_ID, HW_NAME, HW_TYPE, REASON
from agent.telemetry.model import Sample, SignalState

_LIBRARY = "libnvidia-ml.so.1"
_GPU_TYPE = {HW_TYPE: "gpu"}
_MILLI = 1e-3
_NANO = 1e-9
_PERCENT = 1e-2

_Value = tuple[str, float, dict[str, str]]
"""Metric, value, attributes beyond those of the device."""


def _utilization(nvml: Any, device: Any) -> Iterator[_Value]:
    busy = nvml.nvmlDeviceGetUtilizationRates(device).gpu * _PERCENT
    yield "hw.gpu.utilization", busy, {GPU_TASK: "general"}


def _encoder(nvml: Any, device: Any) -> Iterator[_Value]:
    percent, _ = nvml.nvmlDeviceGetEncoderUtilization(device)
    yield "hw.gpu.utilization", percent * _PERCENT, {GPU_TASK: "encoder"}


def _decoder(nvml: Any, device: Any) -> Iterator[_Value]:
    percent, _ = nvml.nvmlDeviceGetDecoderUtilization(device)
    yield "hw.gpu.utilization", percent * _PERCENT, {GPU_TASK: "decoder"}


def _memory(nvml: Any, device: Any) -> Iterator[_Value]:
    memory = nvml.nvmlDeviceGetMemoryInfo(device)
    yield "hw.gpu.memory.usage", memory.used, {}
    yield "hw.gpu.memory.limit", memory.total, {}


def _power(nvml: Any, device: Any) -> Iterator[_Value]:
    yield "hw.power", nvml.nvmlDeviceGetPowerUsage(device) * _MILLI, _GPU_TYPE


def _energy(nvml: Any, device: Any) -> Iterator[_Value]:
    yield "hw.energy", nvml.nvmlDeviceGetTotalEnergyConsumption(device) * _MILLI, _GPU_TYPE


def _temperature(nvml: Any, device: Any) -> Iterator[_Value]:
    celsius = nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)
    yield "hw.temperature", celsius, _GPU_TYPE


def _clock_deficit(nvml: Any, device: Any) -> Iterator[_Value]:
    highest = nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM)
    now = nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)
    if highest > 0:
        yield "tailcause.gpu.clock.deficit", max(0.0, 1.0 - now / highest), {}


def _throttled_by(policy: str) -> Callable[[Any, Any], Iterator[_Value]]:
    def read(nvml: Any, device: Any) -> Iterator[_Value]:
        code = getattr(nvml, f"NVML_PERF_POLICY_{policy.upper()}")
        seconds = nvml.nvmlDeviceGetViolationStatus(device, code).violationTime * _NANO
        yield "tailcause.gpu.throttled_time", seconds, {REASON: policy}

    return read


_POLICIES = ("power", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability")
_FIELDS: tuple[Callable[[Any, Any], Iterator[_Value]], ...] = (
    *(_utilization, _encoder, _decoder, _memory, _power, _energy, _temperature, _clock_deficit),
    *(_throttled_by(policy) for policy in _POLICIES),
)


def load_pynvml() -> Any:
    """Return the binding; look for the library first, which is cheaper than the binding."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError as exc:
        raise NoData(
            f"NVML is not on this machine ({_LIBRARY})",
            remedy="install the NVIDIA driver, if there is a GPU",
        ) from exc
    try:
        return importlib.import_module("pynvml")
    except ImportError as exc:
        raise NoData(
            "the package nvidia-ml-py is missing", remedy="pip install 'tailcause[agent]'"
        ) from exc


class GpuCollector:
    """Reads every GPU; a field that a GPU lacks is left out, a lost GPU leaves the others."""

    METRICS: ClassVar[tuple[str, ...]] = (
        "hw.gpu.utilization",
        "hw.gpu.memory.usage",
        "hw.gpu.memory.limit",
        "hw.power",
        "hw.energy",
        "hw.temperature",
        "tailcause.gpu.clock.deficit",
        "tailcause.gpu.throttled_time",
    )

    def __init__(self, context: CollectorContext, load: Callable[[], Any] = load_pynvml) -> None:
        self._context = context
        self._load = load
        self._nvml: Any = None

    def collect(self) -> list[Sample]:
        """Return the values of all GPUs; raises `NoData` with those at hand if one is lost."""
        nvml = self._load()
        try:
            return self._collect(nvml)
        except nvml.NVMLError_NoPermission as exc:
            raise NoData(
                "NVML refuses access", SignalState.NO_PERMISSION, remedy="run the agent as root"
            ) from exc
        except (nvml.NVMLError_DriverNotLoaded, nvml.NVMLError_Uninitialized) as exc:
            self._nvml = None  # after a driver reload the library must be initialised again
            raise NoData(f"NVML: {exc}", remedy="load the NVIDIA driver") from exc
        except nvml.NVMLError as exc:
            self._release()
            raise AgentError(f"NVML: {exc}") from exc

    def _collect(self, nvml: Any) -> list[Sample]:
        if self._nvml is None:
            nvml.nvmlInit()
            self._nvml = nvml
        count = nvml.nvmlDeviceGetCount()
        if count == 0:
            raise NoData("NVML is there, but no GPU")
        samples: list[Sample] = []
        lost = []
        for index in range(count):
            try:
                samples.extend(self._device(nvml, index))
            except (nvml.NVMLError_GpuIsLost, nvml.NVMLError_ResetRequired):
                lost.append(str(index))
        if lost:
            raise NoData(
                f"GPU {', '.join(lost)} is lost",
                SignalState.GPU_LOST,
                remedy="look for XID errors in the kernel log and reset the GPU",
                samples=samples,
            )
        return samples

    def _device(self, nvml: Any, index: int) -> Iterator[Sample]:
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        identity = {
            HW_ID: _text(nvml.nvmlDeviceGetUUID(device)),
            HW_NAME: _text(nvml.nvmlDeviceGetName(device)),
        }
        absent = (
            nvml.NVMLError_NotSupported,
            nvml.NVMLError_FunctionNotFound,
            nvml.NVMLError_NoPermission,
            nvml.NVMLError_NoData,
        )
        for field in _FIELDS:
            try:
                values = list(field(nvml, device))
            except absent:
                continue
            now = self._context.now_unix_ns()
            for metric, value, attributes in values:
                yield Sample(metric, float(value), now, {**identity, **attributes})

    def _release(self) -> None:
        nvml, self._nvml = self._nvml, None
        if nvml is None:
            return
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            return  # it was not initialised any more, which is what we want


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
