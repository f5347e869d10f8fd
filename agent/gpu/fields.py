"""What is read of a GPU at every collection: one function for a call or two of NVML.

Source: NVML API reference, "Device Queries". A function raises `NVMLError` where the GPU lacks the field.
"""

from collections.abc import Callable, Iterator
from typing import Any

from agent.telemetry.keys import GPU_CLOCK, GPU_TASK, HW_SENSOR, HW_TYPE, REASON
from agent.telemetry.model import Attributes

MILLI = 1e-3
NANO = 1e-9
PERCENT = 1e-2
MEGA = 1e6
GPU_TYPE = {HW_TYPE: "gpu"}

Value = tuple[str, float, Attributes]
"""Metric, value, attributes beyond those of the device."""

Reader = Callable[[Any, Any], Iterator[Value]]
"""Reads some fields through the binding, of a device's handle."""


def _utilization(nvml: Any, device: Any) -> Iterator[Value]:
    rates = nvml.nvmlDeviceGetUtilizationRates(device)
    yield "hw.gpu.utilization", rates.gpu * PERCENT, {GPU_TASK: "general"}
    yield "hw.gpu.utilization", rates.memory * PERCENT, {GPU_TASK: "memory"}


def _encoder(nvml: Any, device: Any) -> Iterator[Value]:
    percent, _ = nvml.nvmlDeviceGetEncoderUtilization(device)
    yield "hw.gpu.utilization", percent * PERCENT, {GPU_TASK: "encoder"}


def _decoder(nvml: Any, device: Any) -> Iterator[Value]:
    percent, _ = nvml.nvmlDeviceGetDecoderUtilization(device)
    yield "hw.gpu.utilization", percent * PERCENT, {GPU_TASK: "decoder"}


def memory(nvml: Any, device: Any) -> Iterator[Value]:
    """Read the memory; drivers before R510 count what they reserve as used, and say so nowhere."""
    try:
        found = nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2)
        yield "tailcause.gpu.memory.reserved", found.reserved, {}
    except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_ArgumentVersionMismatch):
        found = nvml.nvmlDeviceGetMemoryInfo(device)
    yield "hw.gpu.memory.usage", found.used, {}
    yield "hw.gpu.memory.limit", found.total, {}
    yield "tailcause.gpu.memory.free", found.free, {}
    if found.total:
        yield "hw.gpu.memory.utilization", found.used / found.total, {}


def _power(nvml: Any, device: Any) -> Iterator[Value]:
    yield "hw.power", nvml.nvmlDeviceGetPowerUsage(device) * MILLI, GPU_TYPE


def _energy(nvml: Any, device: Any) -> Iterator[Value]:
    yield "hw.energy", nvml.nvmlDeviceGetTotalEnergyConsumption(device) * MILLI, GPU_TYPE


def _temperature(nvml: Any, device: Any) -> Iterator[Value]:
    try:
        celsius = nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)
    except nvml.NVMLError_FunctionNotFound:  # deprecated, to go with CUDA 14
        celsius = nvml.nvmlDeviceGetTemperatureV(device, nvml.NVML_TEMPERATURE_GPU)
    yield "hw.temperature", celsius, {**GPU_TYPE, HW_SENSOR: "gpu"}


def _sm_clock(nvml: Any, device: Any) -> Iterator[Value]:
    now = nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)
    yield "tailcause.gpu.clock.frequency", now * MEGA, {GPU_CLOCK: "sm"}
    highest = nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM)
    if highest > 0:
        yield "tailcause.gpu.clock.deficit", max(0.0, 1.0 - now / highest), {}


def _memory_clock(nvml: Any, device: Any) -> Iterator[Value]:
    now = nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM)
    yield "tailcause.gpu.clock.frequency", now * MEGA, {GPU_CLOCK: "memory"}


CLOCK_EVENTS = (
    (0x001, {REASON: "gpu_idle"}),
    (0x002, {REASON: "applications_clocks_setting"}),
    (0x004, {REASON: "sw_power_cap"}),
    (0x008, {REASON: "hw_slowdown"}),
    (0x010, {REASON: "sync_boost"}),
    (0x020, {REASON: "sw_thermal_slowdown"}),
    (0x040, {REASON: "hw_thermal_slowdown"}),
    (0x080, {REASON: "hw_power_brake_slowdown"}),
    (0x100, {REASON: "display_clock_setting"}),
)
"""The bits of nvmlClocksEventReasons."""


def _clock_events(nvml: Any, device: Any) -> Iterator[Value]:
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(device)
    except nvml.NVMLError_FunctionNotFound:  # its name before R535
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)
    for bit, attributes in CLOCK_EVENTS:
        yield "tailcause.gpu.clock.event", 1.0 if bits & bit else 0.0, attributes


def _throttled_by(policy: str) -> Reader:
    attributes = {REASON: policy}
    constant = f"NVML_PERF_POLICY_{policy.upper()}"

    def read(nvml: Any, device: Any) -> Iterator[Value]:
        violation = nvml.nvmlDeviceGetViolationStatus(device, getattr(nvml, constant))
        yield "tailcause.gpu.throttled_time", violation.violationTime * NANO, attributes

    return read


_POLICIES = ("power", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability")

FIELDS: tuple[tuple[str, Reader], ...] = (
    ("utilization", _utilization),
    ("encoder", _encoder),
    ("decoder", _decoder),
    ("memory", memory),
    ("power", _power),
    ("energy", _energy),
    ("temperature", _temperature),
    ("sm clock", _sm_clock),
    ("memory clock", _memory_clock),
    ("clock events", _clock_events),
    *((f"{policy} violation", _throttled_by(policy)) for policy in _POLICIES),
)
"""By the name under which a call that hangs is reported."""
