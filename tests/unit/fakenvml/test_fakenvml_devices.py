"""Every group of functions, through the real binding, against the values of the scenario."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernels.fakenvml import scenarios
from tests.support.nvml_session import NvmlSession

DISTINCT: dict[str, int | str] = {
    "name": "NVIDIA Test GPU",
    "uuid": "GPU-00000000-1111-2222-3333-444444444444",
    "serial": "1654023001234",
    "vbios": "96.00.01",
    "part_number": "699-2G520",
    "pci": "0000ABCD:19:0E.0",
    "pci.device_id": 0x233010DE,
    "pci.subsystem_id": 0x16C110DE,
    "minor": 101,
    "board_id": 102,
    "module_id": 103,
    "brand": 14,
    "architecture": 9,
    "cores": 104,
    "capability.major": 9,
    "capability.minor": 5,
    "numa_node": 3,
    "memory.bus_width": 5120,
    "memory.total": 85_520_809_984,
    "memory.used": 64_424_509_441,
    "memory.reserved": 577_765_377,
    "bar1.total": 137_438_953_472,
    "bar1.used": 2_097_153,
    "utilization.gpu": 71,
    "utilization.memory": 32,
    "utilization.encoder": 13,
    "utilization.decoder": 14,
    "utilization.jpeg": 15,
    "utilization.ofa": 16,
    "utilization.period_us": 167_001,
    "power.usage": 412_501,
    "power.average": 410_001,
    "power.limit": 690_001,
    "power.limit.default": 700_001,
    "power.limit.enforced": 680_001,
    "power.limit.min": 200_001,
    "power.limit.max": 700_002,
    "energy": 9_007_199_254_740_991,
    "temperature.gpu": 61,
    "temperature.gpu_max": 62,
    "temperature.memory": 72,
    "temperature.margin": 28,
    "temperature.threshold.shutdown": 92,
    "temperature.threshold.slowdown": 89,
    "temperature.threshold.mem_max": 95,
    "temperature.threshold.gpu_max": 87,
    **{
        f"clock.{which}{domain}": 1000 + 10 * i + j
        for i, which in enumerate(("", "max.", "app.", "default.", "boost."))
        for j, domain in enumerate(("graphics", "sm", "mem", "video"))
    },
    "clocks.reasons": 0x48,
    "clocks.reasons.supported": 0x1FF,
    "pstate": 2,
    **{
        f"violation.{policy}": 10**9 + i
        for i, policy in enumerate(
            (
                *("power", "thermal", "sync_boost", "board_limit", "low_utilization"),
                *("reliability", "app_clocks", "base_clocks"),
            )
        )
    },
    "fans": 2,
    "fan.0": 41,
    "fan.1": 43,
    "ecc.mode": 1,
    "ecc.pending": 0,
    "ecc.default": 1,
    "ecc.volatile.corrected": 201,
    "ecc.volatile.uncorrected": 202,
    "ecc.aggregate.corrected": 203,
    "ecc.aggregate.uncorrected": 204,
    "ecc.volatile.corrected.l1": 211,
    "ecc.volatile.corrected.l2": 212,
    "ecc.volatile.corrected.dram": 213,
    "ecc.volatile.corrected.register": 214,
    "ecc.aggregate.uncorrected.sram": 215,
    "retired.sbe": 3,
    "retired.dbe": 1,
    "retired.pending": 1,
    "remapped.correctable": 5,
    "remapped.uncorrectable": 6,
    "remapped.pending": 1,
    "remapped.failure": 0,
    "pcie.tx": 1_250_001,
    "pcie.rx": 830_001,
    "pcie.tx_bytes": 10**12 + 1,
    "pcie.rx_bytes": 10**12 + 2,
    "pcie.replay": 9,
    "pcie.gen": 4,
    "pcie.gen.max": 5,
    "pcie.width": 8,
    "pcie.width.max": 16,
    "pcie.speed": 32_000,
    "nvlink.3.state": 1,
    "nvlink.3.version": 6,
    "nvlink.3.remote": "00000000:C4:00.0",
    "nvlink.3.remote_type": 2,
    "nvlink.3.speed": 26_562,
    **{
        f"nvlink.{link}.{name}": 1000 * (link + 1) + i
        for link in (3, 7)
        for i, name in enumerate(
            (
                *("replay", "recovery", "crc_flit", "crc_data", "ecc_data"),
                *("tx", "rx", "raw_tx", "raw_rx"),
            )
        )
    },
    "field.202.7": 77,
    "field.230": 2,
    "events": 0x11F,
}
"""A value for every key, all of them different where a mix-up could hide."""

ANSWERS: dict[str, Any] = {
    "n.nvmlSystemGetDriverVersion()": "570.133.20",
    "n.nvmlSystemGetNVMLVersion()": "12.570.133.20",
    "n.nvmlSystemGetCudaDriverVersion()": 12080,
    "n.nvmlSystemGetCudaDriverVersion_v2()": 12080,
    "n.nvmlDeviceGetCount()": 2,
    "n.nvmlDeviceGetIndex(device(1))": 1,
    "n.nvmlDeviceGetName(g)": "NVIDIA Test GPU",
    "n.nvmlDeviceGetUUID(g)": DISTINCT["uuid"],
    "n.nvmlDeviceGetSerial(g)": "1654023001234",
    "n.nvmlDeviceGetVbiosVersion(g)": "96.00.01",
    "n.nvmlDeviceGetBoardPartNumber(g)": "699-2G520",
    "n.nvmlDeviceGetMinorNumber(g)": 101,
    "n.nvmlDeviceGetBoardId(g)": 102,
    "n.nvmlDeviceGetModuleId(g)": 103,
    "n.nvmlDeviceGetBrand(g)": 14,
    "n.nvmlDeviceGetArchitecture(g)": 9,
    "n.nvmlDeviceGetNumGpuCores(g)": 104,
    "n.nvmlDeviceGetCudaComputeCapability(g)": [9, 5],
    "n.nvmlDeviceGetNumaNodeId(g)": 3,
    "n.nvmlDeviceGetMemoryBusWidth(g)": 5120,
    "n.nvmlDeviceGetPersistenceMode(g)": 1,
    "n.nvmlDeviceGetComputeMode(g)": 0,
    "n.nvmlDeviceGetAccountingMode(g)": 0,
    "n.nvmlDeviceGetPciInfo(g)": {
        "busIdLegacy": "ABCD:19:0E.0",
        "domain": 0xABCD,
        "bus": 0x19,
        "device": 0x0E,
        "pciDeviceId": 0x233010DE,
        "pciSubSystemId": 0x16C110DE,
        "busId": "0000ABCD:19:0E.0",
    },
    "n.nvmlDeviceGetMemoryInfo(g)": {
        "total": 85_520_809_984,
        "free": 85_520_809_984 - 64_424_509_441 - 577_765_377,
        "used": 64_424_509_441 + 577_765_377,
    },
    "n.nvmlDeviceGetMemoryInfo(g, n.nvmlMemory_v2)": {
        "version": 0x02000028,
        "total": 85_520_809_984,
        "reserved": 577_765_377,
        "free": 85_520_809_984 - 64_424_509_441 - 577_765_377,
        "used": 64_424_509_441,
    },
    "n.nvmlDeviceGetBAR1MemoryInfo(g)": {
        "bar1Total": 137_438_953_472,
        "bar1Free": 137_438_953_472 - 2_097_153,
        "bar1Used": 2_097_153,
    },
    "n.nvmlDeviceGetUtilizationRates(g)": {"gpu": 71, "memory": 32},
    "n.nvmlDeviceGetEncoderUtilization(g)": [13, 167_001],
    "n.nvmlDeviceGetDecoderUtilization(g)": [14, 167_001],
    "n.nvmlDeviceGetJpgUtilization(g)": [15, 167_001],
    "n.nvmlDeviceGetOfaUtilization(g)": [16, 167_001],
    "n.nvmlDeviceGetPowerUsage(g)": 412_501,
    "n.nvmlDeviceGetPowerManagementMode(g)": 1,
    "n.nvmlDeviceGetPowerManagementLimit(g)": 690_001,
    "n.nvmlDeviceGetPowerManagementDefaultLimit(g)": 700_001,
    "n.nvmlDeviceGetPowerManagementLimitConstraints(g)": [200_001, 700_002],
    "n.nvmlDeviceGetEnforcedPowerLimit(g)": 680_001,
    "n.nvmlDeviceGetTotalEnergyConsumption(g)": 9_007_199_254_740_991,
    "n.nvmlDeviceGetTemperature(g, n.NVML_TEMPERATURE_GPU)": 61,
    "n.nvmlDeviceGetTemperatureV(g, n.NVML_TEMPERATURE_GPU)": 61,
    "n.nvmlDeviceGetTemperatureV(g, n.NVML_TEMPERATURE_GPU_MAX)": 62,
    "n.nvmlDeviceGetMarginTemperature(g)": 28,
    "[n.nvmlDeviceGetTemperatureThreshold(g, i) for i in range(4)]": [92, 89, 95, 87],
    "[n.nvmlDeviceGetClockInfo(g, i) for i in range(4)]": [1000, 1001, 1002, 1003],
    "[n.nvmlDeviceGetMaxClockInfo(g, i) for i in range(4)]": [1010, 1011, 1012, 1013],
    "[n.nvmlDeviceGetApplicationsClock(g, i) for i in range(4)]": [1020, 1021, 1022, 1023],
    "[n.nvmlDeviceGetDefaultApplicationsClock(g, i) for i in range(4)]": [1030, 1031, 1032, 1033],
    "[n.nvmlDeviceGetMaxCustomerBoostClock(g, i) for i in range(4)]": [1040, 1041, 1042, 1043],
    "[n.nvmlDeviceGetClock(g, n.NVML_CLOCK_MEM, i) for i in range(4)]": [1002, 1022, 1032, 1042],
    "n.nvmlDeviceGetCurrentClocksEventReasons(g)": 0x48,
    "n.nvmlDeviceGetCurrentClocksThrottleReasons(g)": 0x48,
    "n.nvmlDeviceGetSupportedClocksEventReasons(g)": 0x1FF,
    "n.nvmlDeviceGetSupportedClocksThrottleReasons(g)": 0x1FF,
    "n.nvmlDeviceGetPerformanceState(g)": 2,
    "[n.nvmlDeviceGetViolationStatus(g, i).violationTime for i in (0, 1, 2, 3, 4, 5, 10, 11)]": [
        10**9 + i for i in range(8)
    ],
    "n.nvmlDeviceGetNumFans(g)": 2,
    "n.nvmlDeviceGetFanSpeed(g)": 41,
    "n.nvmlDeviceGetFanSpeed_v2(g, 1)": 43,
    "n.nvmlDeviceGetEccMode(g)": [1, 0],
    "n.nvmlDeviceGetDefaultEccMode(g)": [1],
    "[n.nvmlDeviceGetTotalEccErrors(g, e, c) for c in (0, 1) for e in (0, 1)]": [
        *(201, 202, 203, 204)
    ],
    "n.nvmlDeviceGetDetailedEccErrors(g, 0, 0)": {
        "l1Cache": 211,
        "l2Cache": 212,
        "deviceMemory": 213,
        "registerFile": 214,
    },
    "n.nvmlDeviceGetMemoryErrorCounter(g, 0, 0, n.NVML_MEMORY_LOCATION_DRAM)": 213,
    "n.nvmlDeviceGetMemoryErrorCounter(g, 1, 1, n.NVML_MEMORY_LOCATION_SRAM)": 215,
    "[len(n.nvmlDeviceGetRetiredPages(g, cause)) for cause in (0, 1)]": [3, 1],
    "[page['address'] for page in n.nvmlDeviceGetRetiredPages_v2(g, 0)]": [
        *(0x10000, 0x20000, 0x30000)
    ],
    "n.nvmlDeviceGetRetiredPagesPendingStatus(g)": 1,
    "n.nvmlDeviceGetRemappedRows(g)": [5, 6, 1, 0],
    "list(vars(n.nvmlStructToFriendlyObject(n.nvmlDeviceGetRowRemapperHistogram(g))).values())": [
        *(2560, 0, 0, 0, 0)
    ],
    "[n.nvmlDeviceGetPcieThroughput(g, i) for i in (0, 1)]": [1_250_001, 830_001],
    "n.nvmlDeviceGetPcieReplayCounter(g)": 9,
    "n.nvmlDeviceGetCurrPcieLinkGeneration(g)": 4,
    "n.nvmlDeviceGetMaxPcieLinkGeneration(g)": 5,
    "n.nvmlDeviceGetCurrPcieLinkWidth(g)": 8,
    "n.nvmlDeviceGetMaxPcieLinkWidth(g)": 16,
    "n.nvmlDeviceGetPcieSpeed(g)": 32_000,
    "n.nvmlDeviceGetNvLinkState(g, 3)": 1,
    "n.nvmlDeviceGetNvLinkVersion(g, 3)": 6,
    "n.nvmlDeviceGetNvLinkRemoteDeviceType(g, 3)": 2,
    "n.nvmlDeviceGetNvLinkRemotePciInfo(g, 3).busId": "00000000:C4:00.0",
    "[n.nvmlDeviceGetNvLinkErrorCounter(g, 3, i) for i in range(5)]": [
        4000,
        4001,
        4002,
        4003,
        4004,
    ],
    "n.nvmlDeviceGetSupportedEventTypes(g)": 0x11F,
    "n.nvmlDeviceGetMigMode(g)": [0, 0],
    "n.nvmlDeviceGetMaxMigDeviceCount(g)": 0,
    "n.nvmlDeviceIsMigDeviceHandle(g)": 0,
    "n.nvmlErrorString(15)": "GPU is lost",
}


@pytest.fixture(scope="module")
def gpu(nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NvmlSession]:
    """Start one process over two GPUs, `g` is the one with the values of this file."""
    plain = scenarios.h100(0).lacking("nvlink.")
    scenario = scenarios.healthy(2).with_gpu(0, plain.having(DISTINCT))
    session = NvmlSession(nvml_library, tmp_path_factory.mktemp("gpu"), scenario)
    session.run("g = device(0)")
    yield session
    session.close()


@pytest.mark.parametrize("expression", ANSWERS)
def test_answer(gpu: NvmlSession, expression: str) -> None:
    """The binding reads exactly what the scenario says, in the layout that it expects."""
    assert gpu.ask(expression) == ANSWERS[expression]


@pytest.mark.parametrize(
    ("lookup", "wanted"),
    [
        ("ByUUID", DISTINCT["uuid"]),
        ("BySerial", DISTINCT["serial"]),
        ("ByPciBusId", DISTINCT["pci"]),
    ],
)
def test_handle_by_name(gpu: NvmlSession, lookup: str, wanted: str) -> None:
    """Every way to name a GPU leads to the same handle."""
    same = f"n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandle{lookup}({wanted.encode()!r}))"
    assert gpu.ask(same) == 0


FIELDS: dict[tuple[int, int], tuple[str, Any]] = {
    (1, 0): ("uiVal", 1),
    (3, 0): ("ullVal", 201),
    (4, 0): ("ullVal", 202),
    (5, 0): ("ullVal", 203),
    (6, 0): ("ullVal", 204),
    (11, 0): ("ullVal", 213),
    (29, 0): ("ullVal", 3),
    (30, 0): ("ullVal", 1),
    (35, 0): ("ullVal", 4002),
    (97, 0): ("ullVal", 8002),
    (38, 0): ("ullVal", 4002 + 8002),
    (42, 0): ("ullVal", 4003),
    (49, 0): ("ullVal", 4000),
    (52, 0): ("ullVal", 4000 + 8000),
    (59, 0): ("ullVal", 4001 + 8001),
    (160, 0): ("ullVal", 4004 + 8004),
    (74, 0): ("ullVal", 10**9),
    (75, 0): ("ullVal", 10**9 + 1),
    (81, 0): ("ullVal", 10**9 + 7),
    (82, 0): ("uiVal", 72),
    (83, 0): ("ullVal", 9_007_199_254_740_991),
    (87, 0): ("uiVal", 26_562),
    (91, 0): ("uiVal", 1),
    (94, 0): ("uiVal", 9),
    (138, 3): ("ullVal", 4005),
    (139, 7): ("ullVal", 8006),
    (138, 0xFFFFFFFF): ("ullVal", 4005 + 8005),
    (141, 0xFFFFFFFF): ("ullVal", 4008 + 8008),
    (142, 0): ("uiVal", 5),
    (143, 0): ("uiVal", 6),
    (144, 0): ("uiVal", 1),
    (145, 0): ("uiVal", 0),
    (161, 7): ("ullVal", 8000),
    (165, 3): ("uiVal", 1),
    (185, 0): ("uiVal", 410_001),
    (186, 0): ("uiVal", 412_501),
    (190, 0): ("uiVal", 680_001),
    (191, 0): ("ullVal", 9_007_199_254_740_991),
    (197, 0): ("ullVal", 10**12 + 1),
    (198, 0): ("ullVal", 10**12 + 2),
    (202, 7): ("ullVal", 77),
    (230, 0): ("ullVal", 2),
}
"""(field id, scope): the member of the union that the value type names, and the value."""

_MEMBER = {1: "uiVal", 3: "ullVal"}


def test_field_values(gpu: NvmlSession) -> None:
    """One call reads many fields, each with its type, code and time; links by number and by scope."""
    answers = gpu.ask(f"n.nvmlDeviceGetFieldValues(g, {list(FIELDS)!r})")
    found = {
        (value["fieldId"], value["scopeId"]): (
            _MEMBER[value["valueType"]],
            value["value"][_MEMBER[value["valueType"]]],
        )
        for value in answers
    }
    now_us = gpu.ask("time.time() * 1e6")
    assert found == FIELDS
    assert {value["nvmlReturn"] for value in answers} == {0}
    assert all(0 <= now_us - value["timestamp"] < 60e6 for value in answers)


def test_field_that_is_not_there(gpu: NvmlSession) -> None:
    """A field without a value has a code of its own and leaves the others alone."""
    answers = gpu.ask("n.nvmlDeviceGetFieldValues(g, [82, 84, (138, 5), 9999, 83])")
    assert [value["nvmlReturn"] for value in answers] == [0, 3, 3, 2, 0]


@pytest.mark.parametrize(
    "expression",
    [
        "device(7)",
        "n.nvmlDeviceGetClockInfo(g, 4)",
        "n.nvmlDeviceGetTemperature(g, 9)",
        "n.nvmlDeviceGetTemperatureThreshold(g, 8)",
        "n.nvmlDeviceGetViolationStatus(g, 7)",
        "n.nvmlDeviceGetTotalEccErrors(g, 2, 0)",
        "n.nvmlDeviceGetNvLinkState(g, 36)",
        "n.nvmlDeviceGetPcieThroughput(g, 2)",
        "n.nvmlDeviceGetName(n.c_nvmlDevice_t())",
        "n.nvmlDeviceGetName(ctypes.cast(0x7f0012345678, n.c_nvmlDevice_t))",
    ],
)
def test_invalid_argument(gpu: NvmlSession, expression: str) -> None:
    """What the interface does not know is refused; an invented handle is no crash."""
    assert gpu.outcome(expression) == "NVMLError_InvalidArgument"


def test_other_struct_version(gpu: NvmlSession) -> None:
    """A struct of a version that the library does not speak is a mismatch."""
    wrong = "n.nvmlDeviceGetMemoryInfo(g, 0x03000028)"
    assert gpu.outcome(wrong) == "NVMLError_ArgumentVersionMismatch"


def test_too_small_buffer(gpu: NvmlSession) -> None:
    """A text that does not fit is not cut."""
    code = gpu.ask("n.nvmlLib.nvmlDeviceGetName(g, ctypes.create_string_buffer(4), 4)")
    assert code == 7


def test_process_name(gpu: NvmlSession) -> None:
    """The name of a process is its program; one that is gone is not found."""
    assert "python" in gpu.ask("n.nvmlSystemGetProcessName(__import__('os').getpid())")
    assert gpu.outcome("n.nvmlSystemGetProcessName(4194305)") == "NVMLError_NotFound"
