"""The GPU collector through the real NVML binding, over a library that the test scripts."""

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from agent.collectors import gpu
from agent.collectors.base import CollectorContext, NoData
from agent.collectors.gpu import GpuCollector
from agent.errors import AgentError
from agent.telemetry.model import Sample, SignalState

UUIDS = ("GPU-5e1f0000-aaaa-bbbb-cccc-000000000001", "GPU-5e1f0000-aaaa-bbbb-cccc-000000000002")
OK = pynvml.NVML_SUCCESS
LOST = pynvml.NVML_ERROR_GPU_IS_LOST
NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
UNINITIALIZED = pynvml.NVML_ERROR_UNINITIALIZED


class Library:
    """Stands for libnvidia-ml.so: functions of the C interface, with return codes by name.

    Devices are told apart by the handle's value, 1 and 2.
    """

    def __init__(self) -> None:
        self.failures: dict[tuple[str, int], int] = {}
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Return the C function of a name."""
        try:
            function = getattr(type(self), f"c_{name}")
        except AttributeError:
            raise AttributeError(name) from None

        def call(*args: Any) -> int:
            self.calls.append(name)
            handle = _handle(args[0]) if args else 0
            code: int = self.failures.get((name, handle), self.failures.get((name, 0), OK))
            if code == OK:
                function(*args)
            return code

        return call

    @staticmethod
    def c_nvmlInitWithFlags(_flags: Any) -> None:  # noqa: N802  the C names
        """Initialise."""

    @staticmethod
    def c_nvmlShutdown() -> None:  # noqa: N802
        """Shut down."""

    @staticmethod
    def c_nvmlDeviceGetCount_v2(count: Any) -> None:  # noqa: N802
        """Count two devices."""
        count._obj.value = len(UUIDS)

    @staticmethod
    def c_nvmlDeviceGetHandleByIndex_v2(index: Any, handle: Any) -> None:  # noqa: N802
        """Return handle 1 or 2."""
        ctypes.cast(handle, ctypes.POINTER(ctypes.c_void_p))[0] = index.value + 1

    @staticmethod
    def c_nvmlDeviceGetUUID(device: Any, text: Any, _size: Any) -> None:  # noqa: N802
        """Return the UUID."""
        text.value = UUIDS[_handle(device) - 1].encode()

    @staticmethod
    def c_nvmlDeviceGetName(_device: Any, text: Any, _size: Any) -> None:  # noqa: N802
        """Return the product."""
        text.value = b"NVIDIA H200"

    @staticmethod
    def c_nvmlDeviceGetUtilizationRates(_device: Any, rates: Any) -> None:  # noqa: N802
        """Return 87 %."""
        rates._obj.gpu = 87

    @staticmethod
    def c_nvmlDeviceGetEncoderUtilization(_d: Any, percent: Any, period: Any) -> None:  # noqa: N802
        """Return 3 %."""
        percent._obj.value, period._obj.value = 3, 167000

    @staticmethod
    def c_nvmlDeviceGetDecoderUtilization(_d: Any, percent: Any, period: Any) -> None:  # noqa: N802
        """Return 5 %."""
        percent._obj.value, period._obj.value = 5, 167000

    @staticmethod
    def c_nvmlDeviceGetMemoryInfo(_device: Any, memory: Any) -> None:  # noqa: N802
        """Return 10 of 140 GB."""
        memory._obj.total, memory._obj.used = 140_000_000_000, 10_000_000_000

    @staticmethod
    def c_nvmlDeviceGetPowerUsage(_device: Any, milliwatts: Any) -> None:  # noqa: N802
        """Return 412.5 W."""
        milliwatts._obj.value = 412_500

    @staticmethod
    def c_nvmlDeviceGetTotalEnergyConsumption(_device: Any, millijoules: Any) -> None:  # noqa: N802
        """Return 9 000 J."""
        millijoules._obj.value = 9_000_000

    @staticmethod
    def c_nvmlDeviceGetTemperature(_device: Any, _sensor: Any, celsius: Any) -> None:  # noqa: N802
        """Return 61 °C."""
        celsius._obj.value = 61

    @staticmethod
    def c_nvmlDeviceGetClockInfo(_device: Any, _kind: Any, mhz: Any) -> None:  # noqa: N802
        """Return 1 485 MHz."""
        mhz._obj.value = 1485

    @staticmethod
    def c_nvmlDeviceGetMaxClockInfo(_device: Any, _kind: Any, mhz: Any) -> None:  # noqa: N802
        """Return 1 980 MHz."""
        mhz._obj.value = 1980

    @staticmethod
    def c_nvmlDeviceGetViolationStatus(_device: Any, policy: Any, times: Any) -> None:  # noqa: N802
        """Return a second per number of the policy."""
        times._obj.violationTime = (policy.value + 1) * 1_000_000_000


def _handle(argument: Any) -> int:
    if not isinstance(argument, pynvml.c_nvmlDevice_t):
        return 0
    return ctypes.cast(argument, ctypes.c_void_p).value or 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    """Put a scripted library in the place of the loaded one."""
    scripted = Library()
    monkeypatch.setattr(pynvml, "nvmlLib", scripted)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return scripted


def collector() -> GpuCollector:
    """Return a collector over the binding as the test has patched it."""
    return GpuCollector(CollectorContext(now_unix_ns=lambda: 5), lambda: pynvml)


def of_device(samples: list[Sample], uuid: str) -> dict[str, float]:
    """Return a device's values by metric and, where there is one, task or reason."""
    found = {}
    for sample in samples:
        if sample.attributes["hw.id"] == uuid:
            detail = sample.attributes.get("hw.gpu.task", sample.attributes.get("reason", ""))
            found[f"{sample.metric} {detail}".strip()] = round(sample.value, 9)
    return found


def test_every_field_in_base_units(library: Library) -> None:
    """Milliwatts, millijoules, percent and nanoseconds become W, J, ratios and s."""
    assert of_device(collector().collect(), UUIDS[1]) == {
        "hw.gpu.utilization general": 0.87,
        "hw.gpu.utilization encoder": 0.03,
        "hw.gpu.utilization decoder": 0.05,
        "hw.gpu.memory.usage": 10_000_000_000,
        "hw.gpu.memory.limit": 140_000_000_000,
        "hw.power": 412.5,
        "hw.energy": 9000,
        "hw.temperature": 61,
        "tailcause.gpu.clock.deficit": 0.25,
        "tailcause.gpu.throttled_time power": 1,
        "tailcause.gpu.throttled_time thermal": 2,
        "tailcause.gpu.throttled_time sync_boost": 3,
        "tailcause.gpu.throttled_time board_limit": 4,
        "tailcause.gpu.throttled_time low_utilization": 5,
        "tailcause.gpu.throttled_time reliability": 6,
    }


def test_unsupported_field_is_left_out(library: Library) -> None:
    """A field that the GPU lacks is absent, not 0, and the others are there."""
    library.failures["nvmlDeviceGetTotalEnergyConsumption", 0] = NOT_SUPPORTED
    found = of_device(collector().collect(), UUIDS[0])
    assert "hw.energy" not in found
    assert found["hw.power"] == 412.5


def test_lost_gpu_leaves_the_others(library: Library) -> None:
    """With one GPU off the bus the signal says so and still carries the other's values."""
    library.failures["nvmlDeviceGetUUID", 1] = LOST
    with pytest.raises(NoData, match="GPU 0 is lost") as caught:
        collector().collect()
    assert caught.value.state is SignalState.GPU_LOST
    assert {s.attributes["hw.id"] for s in caught.value.samples} == {UUIDS[1]}


def test_driver_reload_is_survived(library: Library) -> None:
    """After the driver went away the library is initialised again."""
    gpus = collector()
    gpus.collect()
    library.failures["nvmlDeviceGetCount_v2", 0] = UNINITIALIZED
    with pytest.raises(NoData):
        gpus.collect()
    library.failures.clear()
    gpus.collect()
    assert library.calls.count("nvmlInitWithFlags") == 2


def test_driver_not_loaded_is_not_supported(library: Library) -> None:
    """A library without a driver is no failure."""
    library.failures["nvmlInitWithFlags", 0] = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    with pytest.raises(NoData) as caught:
        collector().collect()
    assert caught.value.state is SignalState.NOT_SUPPORTED


def test_refused_access_is_no_permission(library: Library) -> None:
    """A library that refuses access is told apart."""
    library.failures["nvmlInitWithFlags", 0] = pynvml.NVML_ERROR_NO_PERMISSION
    with pytest.raises(NoData) as caught:
        collector().collect()
    assert caught.value.state is SignalState.NO_PERMISSION


def test_unknown_error_releases_the_library(library: Library) -> None:
    """Any other error is a failure of this collection, and the next one starts afresh."""
    library.failures["nvmlDeviceGetMemoryInfo", 0] = pynvml.NVML_ERROR_UNKNOWN
    with pytest.raises(AgentError, match="NVML: Unknown Error"):
        collector().collect()
    assert library.calls[-1] == "nvmlShutdown"


def test_missing_library_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the driver's library there is no GPU signal, and the binding is not even loaded."""
    monkeypatch.setattr(gpu, "_LIBRARY", "libnvidia-ml-that-is-not-there.so.1")
    with pytest.raises(NoData, match="NVML is not on this machine") as caught:
        GpuCollector(CollectorContext()).collect()
    assert caught.value.state is SignalState.NOT_SUPPORTED
