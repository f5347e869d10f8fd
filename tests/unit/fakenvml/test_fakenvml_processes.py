"""Values that move, and the processes on a GPU in every layout that there is."""

from collections.abc import Callable

import pytest

from kernels.fakenvml import scenarios
from kernels.fakenvml.scenario import Process, Ramp, Scenario
from tests.support.nvml_session import NvmlSession

Start = Callable[[Scenario], NvmlSession]
PROCESSES = (
    Process(100, 1 << 30, use=(40, 20, 1, 2)),
    Process(101, None, use=(10, 5, 0, 0)),
    Process(102, 5 << 20, kind="graphics"),
    Process(103, 6 << 20, kind="mps"),
)


@pytest.fixture
def shared(start: Start) -> NvmlSession:
    """Start a process over one GPU with processes of all kinds."""
    scenario = scenarios.healthy(1)
    gpu = scenario.gpus[0]
    return start(scenario.with_gpu(0, type(gpu)(values=gpu.values, processes=PROCESSES)))


@pytest.mark.parametrize("version", ["_v2", "_v3", ""])
def test_running_processes(shared: NvmlSession, version: str) -> None:
    """Every version lists the compute processes; memory that is not available is None."""
    found = shared.ask(f"n.nvmlDeviceGetComputeRunningProcesses{version}(device(0))")
    nowhere = {"gpuInstanceId": 0xFFFFFFFF, "computeInstanceId": 0xFFFFFFFF}
    assert found == [
        {"pid": 100, "usedGpuMemory": 1 << 30, **nowhere},
        {"pid": 101, "usedGpuMemory": None, **nowhere},
    ]


def test_kinds_of_processes(shared: NvmlSession) -> None:
    """Graphics and MPS processes have lists of their own."""
    graphics = shared.ask("n.nvmlDeviceGetGraphicsRunningProcesses(device(0))")
    mps = shared.ask("n.nvmlDeviceGetMPSComputeRunningProcesses(device(0))")
    assert [p["pid"] for p in graphics] == [102]
    assert [p["pid"] for p in mps] == [103]


def test_first_layout_of_processes(shared: NvmlSession) -> None:
    """The function without a version fills the old struct of two members."""
    pids = shared.run("""
class Old(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong)]
count, entries = ctypes.c_uint(9), (Old * 9)()
code = n.nvmlLib.nvmlDeviceGetComputeRunningProcesses(device(0), ctypes.byref(count), entries)
result = [code, count.value, [(e.pid, e.used) for e in entries[:2]]]
""")
    assert pids == [0, 2, [[100, 1 << 30], [101, 0xFFFFFFFFFFFFFFFF]]]


def test_process_utilization(shared: NvmlSession) -> None:
    """There is a sample for each process that used the GPU, and none until the driver sampled again."""
    samples = shared.ask("n.nvmlDeviceGetProcessUtilization(device(0), 0)")
    found = {s["pid"]: (s["smUtil"], s["memUtil"], s["encUtil"], s["decUtil"]) for s in samples}
    assert found == {100: (40, 20, 1, 2), 101: (10, 5, 0, 0)}
    future = "n.nvmlDeviceGetProcessUtilization(device(0), int(time.time() * 1e6) + 10**6)"
    assert shared.outcome(future) == "NVMLError_NotFound"


def test_process_utilization_info(shared: NvmlSession) -> None:
    """The newer function says the same in its own layout."""
    samples = shared.ask("n.nvmlDeviceGetProcessesUtilizationInfo(device(0), 0)")
    assert [(s["pid"], s["smUtil"], s["decUtil"]) for s in samples] == [(100, 40, 2), (101, 10, 0)]


def test_value_that_grows(start: Start) -> None:
    """A ramp goes on from its epoch at its rate."""
    now = scenarios.healthy(1)
    session = start(now.having(0, {"energy": Ramp(1000, 500_000)}))
    before_s, value, after_s = session.run("""
result = [time.monotonic(), n.nvmlDeviceGetTotalEnergyConsumption(device(0)), time.monotonic()]
""")
    assert 500_000 * (before_s - now.epoch_s) <= value - 1000 + 2
    assert value - 1000 - 2 <= 500_000 * (after_s - now.epoch_s)
