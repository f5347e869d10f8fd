"""Fields that NVML hands over many at a time: traffic, memory temperature, throttled time by its causes.

Source: NVML API reference, "Field Value Queries" and "Field Value Enums" (units in their comments).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from agent.gpu.fields import GPU_TYPE, NANO, Value
from agent.gpu.slow_fields import links
from agent.telemetry.keys import GPU_INTERCONNECT, GPU_LINK, HW_SENSOR, IO_DIRECTION, REASON

_IO = "hw.gpu.io"
_KIB = 1024.0
_ALL_LINKS = 0xFFFFFFFF
"""The scope that means the sum over all NVLinks."""
_VALUE_OF_TYPE = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of nvmlValue_t by nvmlValueType_t."""
PCIE = {GPU_INTERCONNECT: "pcie"}
NVLINK = {GPU_INTERCONNECT: "nvlink"}
_TRANSMIT = {IO_DIRECTION: "transmit"}
_RECEIVE = {IO_DIRECTION: "receive"}


@dataclass(frozen=True)
class Field:
    """One field: NVML's constant, our metric, what its unit is multiplied by to get ours."""

    constant: str
    metric: str
    factor: float = 1.0
    attributes: dict[str, str] = field(default_factory=dict)
    scope: int = 0


FAST: tuple[Field, ...] = (
    Field("MEMORY_TEMP", "hw.temperature", 1.0, {**GPU_TYPE, HW_SENSOR: "memory"}),
    Field("PCIE_COUNT_TX_BYTES", _IO, 1.0, {**PCIE, **_TRANSMIT}),
    Field("PCIE_COUNT_RX_BYTES", _IO, 1.0, {**PCIE, **_RECEIVE}),
    Field("NVLINK_THROUGHPUT_DATA_TX", _IO, _KIB, {**NVLINK, **_TRANSMIT}, _ALL_LINKS),
    Field("NVLINK_THROUGHPUT_DATA_RX", _IO, _KIB, {**NVLINK, **_RECEIVE}, _ALL_LINKS),
    Field(
        "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
        "tailcause.gpu.throttled_time",
        NANO,
        {REASON: "sw_thermal_slowdown"},
    ),
    Field(
        "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
        "tailcause.gpu.throttled_time",
        NANO,
        {REASON: "hw_thermal_slowdown"},
    ),
    Field(
        "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
        "tailcause.gpu.throttled_time",
        NANO,
        {REASON: "hw_power_brake_slowdown"},
    ),
)


def of_links(nvml: Any, device: Any) -> tuple[Field, ...]:
    """Return the traffic of each NVLink that is up; raises `NVMLError` where there are none."""
    kinds = (("NVLINK_THROUGHPUT_DATA_TX", _TRANSMIT), ("NVLINK_THROUGHPUT_DATA_RX", _RECEIVE))
    return tuple(
        Field(constant, "tailcause.gpu.nvlink.io", _KIB, {GPU_LINK: str(link), **direction}, link)
        for link in links(nvml, device)
        for constant, direction in kinds
    )


class FieldValues:
    """Reads a set of fields in one call, and leaves out for good those that the GPU does not have."""

    def __init__(self, nvml: Any, fields: tuple[Field, ...]) -> None:
        known = [(getattr(nvml, f"NVML_FI_DEV_{f.constant}", None), f) for f in fields]
        self._fields = [(number, f) for number, f in known if number is not None]

    def read(self, nvml: Any, device: Any) -> Iterator[Value]:
        """Yield the values there are; raises `NVMLError` where the GPU has none of them."""
        if not self._fields:
            return
        wanted = [(number, f.scope) for number, f in self._fields]
        answers = nvml.nvmlDeviceGetFieldValues(device, wanted)
        absent = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT)
        kept = []
        for entry, answer in zip(self._fields, answers, strict=True):
            if answer.nvmlReturn in absent:
                continue
            kept.append(entry)
            if answer.nvmlReturn == nvml.NVML_SUCCESS:
                number = getattr(answer.value, _VALUE_OF_TYPE[answer.valueType])
                yield entry[1].metric, number * entry[1].factor, entry[1].attributes
        self._fields = kept


class Traffic:
    """The fields of every collection, and the rate of the NVLinks that follows from them."""

    def __init__(self, nvml: Any, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._values = FieldValues(nvml, FAST)
        self._monotonic_s = monotonic_s
        self._before: tuple[float, float] | None = None
        self.counts_pcie = False
        """Whether the chip counts the bytes of its PCIe link."""

    def read(self, nvml: Any, device: Any) -> Iterator[Value]:
        """Yield the values there are; raises `NVMLError` where the GPU has no fields at all."""
        values = list(self._values.read(nvml, device))
        yield from values
        traffic = [(value, attributes) for metric, value, attributes in values if metric == _IO]
        self.counts_pcie = any(PCIE.items() <= attributes.items() for _, attributes in traffic)
        by_nvlink = [value for value, attributes in traffic if NVLINK.items() <= attributes.items()]
        if by_nvlink:
            yield from self._rate(sum(by_nvlink))

    def _rate(self, total: float) -> Iterator[Value]:
        now_s = self._monotonic_s()
        if self._before is not None:
            before, before_s = self._before
            if total >= before and now_s > before_s:  # else the counters began anew
                rate = (total - before) / (now_s - before_s)
                yield "tailcause.gpu.nvlink.throughput", rate, {}
        self._before = total, now_s


class LinkTraffic:
    """The traffic of each NVLink that is up."""

    def __init__(self) -> None:
        self._values: FieldValues | None = None

    def read(self, nvml: Any, device: Any) -> Iterator[Value]:
        """Yield the bytes by link and direction; raises `NVMLError` where there are no NVLinks."""
        if self._values is None:
            self._values = FieldValues(nvml, of_links(nvml, device))
        return self._values.read(nvml, device)
