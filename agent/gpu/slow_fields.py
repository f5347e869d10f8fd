"""What is read of a GPU at every tenth collection: errors, limits and what changes by the day.

Source: NVML API reference, "Device Queries" and "NvLink Methods".
"""

from collections.abc import Iterator
from typing import Any

from agent.gpu.fields import GPU_TYPE, MILLI, PERCENT, Reader, Value
from agent.telemetry.keys import ERROR_TYPE, GPU_LINK, HW_LIMIT, HW_SENSOR, HW_TYPE, IO_DIRECTION

_KIB = 1024
CORRECTED = {ERROR_TYPE: "ecc_corrected"}
UNCORRECTED = {ERROR_TYPE: "ecc_uncorrected"}


def _error(kind: str) -> dict[str, str]:
    return {HW_TYPE: "gpu", ERROR_TYPE: kind}


def _ecc(nvml: Any, device: Any) -> Iterator[Value]:
    errors = (
        ("corrected", nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        ("uncorrected", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    )
    counters = (("volatile", nvml.NVML_VOLATILE_ECC), ("aggregate", nvml.NVML_AGGREGATE_ECC))
    for error, error_code in errors:
        for counter, counter_code in counters:
            count = nvml.nvmlDeviceGetTotalEccErrors(device, error_code, counter_code)
            yield "hw.errors", count, _error(f"ecc_{error}_{counter}")


def _retired_pages(nvml: Any, device: Any) -> Iterator[Value]:
    causes = (
        (CORRECTED, nvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS),
        (UNCORRECTED, nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR),
    )
    for attributes, cause in causes:
        pages = nvml.nvmlDeviceGetRetiredPages(device, cause)
        yield "tailcause.gpu.retired_pages", len(pages), attributes
    pending = nvml.nvmlDeviceGetRetiredPagesPendingStatus(device)
    yield "tailcause.gpu.retired_pages.pending", pending, {}


def _remapped_rows(nvml: Any, device: Any) -> Iterator[Value]:
    corrected, uncorrected, pending, failed = nvml.nvmlDeviceGetRemappedRows(device)
    yield "tailcause.gpu.remapped_rows", corrected, CORRECTED
    yield "tailcause.gpu.remapped_rows", uncorrected, UNCORRECTED
    yield "tailcause.gpu.remapped_rows.pending", pending, {}
    yield "tailcause.gpu.remapped_rows.failed", failed, {}


def _bar1(nvml: Any, device: Any) -> Iterator[Value]:
    found = nvml.nvmlDeviceGetBAR1MemoryInfo(device)
    yield "tailcause.gpu.bar1.usage", found.bar1Used, {}
    yield "tailcause.gpu.bar1.limit", found.bar1Total, {}


def _power_limit(nvml: Any, device: Any) -> Iterator[Value]:
    yield "tailcause.gpu.power.limit", nvml.nvmlDeviceGetEnforcedPowerLimit(device) * MILLI, {}


def _temperature_limit(constant: str, sensor: str, limit: str) -> Reader:
    attributes = {**GPU_TYPE, HW_SENSOR: sensor, HW_LIMIT: limit}
    threshold = f"NVML_TEMPERATURE_THRESHOLD_{constant}"

    def read(nvml: Any, device: Any) -> Iterator[Value]:
        celsius = nvml.nvmlDeviceGetTemperatureThreshold(device, getattr(nvml, threshold))
        yield "hw.temperature.limit", celsius, attributes

    return read


def _fan(nvml: Any, device: Any) -> Iterator[Value]:
    yield "hw.fan.speed_ratio", nvml.nvmlDeviceGetFanSpeed(device) * PERCENT, GPU_TYPE


def _pcie_replays(nvml: Any, device: Any) -> Iterator[Value]:
    yield "hw.errors", nvml.nvmlDeviceGetPcieReplayCounter(device), _error("pcie_replay")


def pcie_throughput(nvml: Any, device: Any) -> Iterator[Value]:
    """Read the traffic of 20 ms; each direction takes as long, so only where its bytes are not counted."""
    directions = (
        ("transmit", nvml.NVML_PCIE_UTIL_TX_BYTES),
        ("receive", nvml.NVML_PCIE_UTIL_RX_BYTES),
    )
    for direction, code in directions:
        kib = nvml.nvmlDeviceGetPcieThroughput(device, code)
        yield "tailcause.gpu.pcie.throughput", kib * _KIB, {IO_DIRECTION: direction}


_LINK_ERRORS = (
    ("nvlink_replay", "NVML_NVLINK_ERROR_DL_REPLAY"),
    ("nvlink_recovery", "NVML_NVLINK_ERROR_DL_RECOVERY"),
    ("nvlink_crc_flit", "NVML_NVLINK_ERROR_DL_CRC_FLIT"),
    ("nvlink_crc_data", "NVML_NVLINK_ERROR_DL_CRC_DATA"),
)


def _nvlinks(nvml: Any, device: Any) -> Iterator[Value]:
    """Read the errors of each link that is up, and their sums by kind."""
    totals: dict[str, int] = {}
    active = links(nvml, device)
    for link in active:
        counts = _link_errors(nvml, device, link)
        for kind, count in counts.items():
            totals[kind] = totals.get(kind, 0) + count
        if counts:
            yield "tailcause.gpu.nvlink.errors", sum(counts.values()), {GPU_LINK: str(link)}
    yield "tailcause.gpu.nvlink.active", len(active), {}
    for kind, count in totals.items():
        yield "hw.errors", count, _error(kind)


def _link_errors(nvml: Any, device: Any, link: int) -> dict[str, int]:
    """Return the counts by kind; a chip does not count every kind."""
    counts = {}
    for kind, constant in _LINK_ERRORS:
        try:
            counts[kind] = nvml.nvmlDeviceGetNvLinkErrorCounter(
                device, link, getattr(nvml, constant)
            )
        except nvml.NVMLError_NotSupported:
            continue
    return counts


def links(nvml: Any, device: Any) -> list[int]:
    """Return the numbers of the NVLinks that are up; raises `NVMLError_NotSupported` where there are none."""
    active = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(device, link):
                active.append(link)
        except (nvml.NVMLError_InvalidArgument, nvml.NVMLError_NotSupported):
            if link == 0:
                raise
            break  # the GPU has fewer
    return active


SLOW_FIELDS: tuple[tuple[str, Reader], ...] = (
    ("ECC errors", _ecc),
    ("retired pages", _retired_pages),
    ("remapped rows", _remapped_rows),
    ("BAR1", _bar1),
    ("power limit", _power_limit),
    ("slow-down temperature", _temperature_limit("SLOWDOWN", "gpu", "high.degraded")),
    ("shut-down temperature", _temperature_limit("SHUTDOWN", "gpu", "high.critical")),
    ("memory temperature limit", _temperature_limit("MEM_MAX", "memory", "high.degraded")),
    ("fan", _fan),
    ("PCIe replays", _pcie_replays),
    ("NVLinks", _nvlinks),
)
