"""What goes wrong with a driver or a GPU: codes, hangs, reloads, symbols that are missing."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels.fakenvml import build, scenarios
from kernels.fakenvml.scenario import Failure, Hang, Scenario
from kernels.fakenvml.scenarios import SCENARIOS
from tests.support.nvml_session import NvmlSession

Start = Callable[[Scenario], NvmlSession]
POWER = "n.nvmlDeviceGetPowerUsage(handles[{}])"
HANDLES = "handles = [device(i) for i in range(n.nvmlDeviceGetCount())]"


def with_faults(index: int, *faults: Failure | Hang) -> Scenario:
    """Return two healthy GPUs, one of them with faults."""
    healthy = scenarios.healthy(2)
    return healthy.with_gpu(index, healthy.gpus[index].faulty(*faults))


def test_lost_gpu_leaves_the_other(start: Start) -> None:
    """A GPU off the bus is counted, but says so at every call, also through an old handle."""
    session = start(scenarios.healthy(2))
    session.run(HANDLES)
    session.stage(with_faults(1, Failure("*", "GPU_IS_LOST")))
    assert session.ask("n.nvmlDeviceGetCount()") == 2
    assert session.outcome("device(1)") == "NVMLError_GpuIsLost"
    assert session.outcome(POWER.format(1)) == "NVMLError_GpuIsLost"
    assert session.outcome(POWER.format(0)) == 412_500


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("NOT_SUPPORTED", "NVMLError_NotSupported"),
        ("NO_PERMISSION", "NVMLError_NoPermission"),
        ("RESET_REQUIRED", "NVMLError_ResetRequired"),
        ("UNKNOWN", "NVMLError_Unknown"),
        ("NO_DATA", "NVMLError_NoData"),
        ("TIMEOUT", "NVMLError_Timeout"),
    ],
)
def test_one_function_of_one_gpu(start: Start, code: str, name: str) -> None:
    """A failure of one function of one GPU leaves its other functions and the other GPU."""
    session = start(with_faults(0, Failure("nvmlDeviceGetPowerUsage", code)))
    session.run(HANDLES)
    assert session.outcome(POWER.format(0)) == name
    assert session.outcome(POWER.format(1)) == 412_500
    assert session.outcome("n.nvmlDeviceGetMinorNumber(handles[0])") == 0


def test_name_stands_for_its_versions(start: Start) -> None:
    """A failure of a function is one of its versions, unless it names the version."""
    session = start(
        with_faults(
            0,
            Failure("nvmlDeviceGetComputeRunningProcesses", "NO_PERMISSION"),
            Failure("nvmlDeviceGetMemoryInfo_v2", "NOT_SUPPORTED"),
        )
    )
    processes = "n.nvmlDeviceGetComputeRunningProcesses_v2(device(0))"
    assert session.outcome(processes) == "NVMLError_NoPermission"
    memory = "n.nvmlDeviceGetMemoryInfo(device(0), n.nvmlMemory_v2)"
    assert session.outcome(memory) == "NVMLError_NotSupported"
    assert session.ask("n.nvmlDeviceGetMemoryInfo(device(0)).total") == 81_559 << 20


def test_failure_of_the_node_holds_everywhere(start: Start) -> None:
    """What the node cannot do, no GPU can."""
    session = start(scenarios.healthy(2).faulty(Failure("nvmlDeviceGetTemp*", "NO_PERMISSION")))
    found = [session.outcome(f"n.nvmlDeviceGetTemperature(device({i}), 0)") for i in (0, 1)]
    assert found == ["NVMLError_NoPermission"] * 2


def test_driver_not_loaded(nvml_library: Path, tmp_path: Path) -> None:
    """Without a driver the library loads, and cannot be initialised until there is one."""
    session = NvmlSession(nvml_library, tmp_path, scenarios.no_driver(), init=False)
    try:
        assert session.outcome("n.nvmlInit()") == "NVMLError_DriverNotLoaded"
        assert session.outcome("n.nvmlDeviceGetCount()") == "NVMLError_Uninitialized"
        session.stage(scenarios.healthy(1))
        session.ask("n.nvmlInit()")
        assert session.ask("n.nvmlDeviceGetCount()") == 1
    finally:
        session.close()


def test_shutdown_as_often_as_init(start: Start) -> None:
    """The library counts initialisations, and is of no use after the last shutdown."""
    session = start(scenarios.healthy(1))
    session.run("n.nvmlInit()\nn.nvmlShutdown()")
    assert session.ask("n.nvmlDeviceGetCount()") == 1
    session.run("n.nvmlShutdown()")
    assert session.outcome("n.nvmlDeviceGetCount()") == "NVMLError_Uninitialized"
    assert session.outcome("n.nvmlShutdown()") == "NVMLError_Uninitialized"


def test_driver_reload(start: Start) -> None:
    """After a reload nothing works until the library is shut down and initialised; old handles die."""
    session = start(scenarios.healthy(2))
    session.run(HANDLES)
    session.stage(scenarios.healthy(2).reloaded())
    assert session.outcome(POWER.format(0)) == "NVMLError_Uninitialized"
    session.run("n.nvmlInit()")  # only counts: the first one still holds the old driver
    assert session.outcome("n.nvmlDeviceGetCount()") == "NVMLError_Uninitialized"
    session.run("n.nvmlShutdown()\nn.nvmlShutdown()\nn.nvmlInit()")
    assert session.outcome(POWER.format(0)) == "NVMLError_InvalidArgument"
    assert session.outcome("n.nvmlDeviceGetPowerUsage(device(0))") == 412_500


def test_status_tells_what_is_held(start: Start) -> None:
    """What a process holds is in its status file, and all of it can be given back."""
    session = start(scenarios.healthy(2))
    session.run(HANDLES + "\nevents = n.nvmlEventSetCreate()\nsample = n.nvmlGpmSampleAlloc()")
    status = session.status()
    held = (status.inits, status.device_handles, status.event_sets, status.gpm_samples)
    assert held == (1, 2, 1, 1)
    assert not status.is_released
    session.run("n.nvmlEventSetFree(events)\nn.nvmlGpmSampleFree(sample)\nn.nvmlShutdown()")
    assert session.status().is_released


def test_objects_can_be_freed_after_a_reload(start: Start) -> None:
    """Freeing what the driver of before gave out works although nothing else does."""
    session = start(scenarios.healthy(1))
    session.run("events = n.nvmlEventSetCreate()")
    session.stage(scenarios.healthy(1).reloaded())
    session.outcome("n.nvmlEventSetFree(events)")
    session.run("n.nvmlShutdown()")
    assert session.status().is_released


HANG = """
def read(index):
    n.nvmlDeviceGetPowerUsage(handles[index])
    done.append(index)
done = []
thread = threading.Thread(target=read, args=(0,), daemon=True)
thread.start()
"""


def test_hang_holds_up_nobody_else(start: Start) -> None:
    """While one GPU's call blocks, a thousand calls to the other are answered."""
    session = start(scenarios.healthy(2))
    session.run(HANDLES)
    session.stage(with_faults(0, Hang("nvmlDeviceGetPowerUsage")))
    others = session.run(HANG + "for _ in range(1000): read(1)\nresult = done.count(1)")
    assert others == 1000
    assert session.ask("thread.is_alive()")
    session.stage(scenarios.healthy(2))
    session.run("thread.join(60)")
    assert session.ask("done.count(0)") == 1


def test_hang_ends_after_its_time(start: Start) -> None:
    """A call blocks for as long as the scenario says, then answers; the trace has its duration."""
    session = start(with_faults(0, Hang("nvmlDeviceGetPowerUsage", 0.2)))
    began = time.monotonic()
    assert session.ask("n.nvmlDeviceGetPowerUsage(device(0))") == 412_500
    assert time.monotonic() - began >= 0.2
    (call,) = [c for c in session.calls() if c.function == "nvmlDeviceGetPowerUsage"]
    assert (call.gpu, call.code) == (0, 0)
    assert call.took_s >= 0.2


def test_hang_then_lost(start: Start) -> None:
    """A hung call that the scenario turns into a lost GPU comes back with that."""
    session = start(scenarios.healthy(2))
    session.run(HANDLES)
    session.stage(with_faults(0, Hang("*")))
    session.run("""
def read():
    try:
        n.nvmlDeviceGetPowerUsage(handles[0])
    except n.NVMLError as error:
        found.append(error.value)
found = []
thread = threading.Thread(target=read, daemon=True)
thread.start()
""")
    session.stage(with_faults(0, Failure("*", "GPU_IS_LOST")))
    session.run("thread.join(60)")
    assert session.ask("found") == [15]


def test_rewrites_under_load(start: Start) -> None:
    """Threads that read while the scenario is rewritten see the old values or the new, never a mix."""
    pairs = [{"utilization.gpu": i, "utilization.memory": i} for i in range(100)]
    healthy = scenarios.healthy(1).having(0, pairs[0])
    session = start(healthy)
    session.run("""
def read():
    handle = device(0)
    while not stop.is_set():
        rates = n.nvmlDeviceGetUtilizationRates(handle)
        seen.append((rates.gpu, rates.memory))
seen, stop = [], threading.Event()
threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads: thread.start()
""")
    for pair in pairs:
        session.stage(healthy.having(0, pair))
    session.run("""
deadline = time.monotonic() + 60
while seen[-1] != (99, 99) and time.monotonic() < deadline: time.sleep(0.01)
stop.set()
for thread in threads: thread.join()
""")
    seen = session.ask("sorted(set(seen))")
    assert all(gpu == memory for gpu, memory in seen)
    assert seen[-1] == [99, 99]
    assert session.stderr() == ""


def test_broken_rewrite_changes_nothing(start: Start) -> None:
    """A file that makes no sense is reported with its line; the last good one stays in force."""
    session = start(scenarios.healthy(1))
    session.scenario_path.write_text("driver 1\ngpu\n  fail nvmlDeviceGetName NO_SUCH_CODE\n")
    assert session.ask("n.nvmlDeviceGetPowerUsage(device(0))") == 412_500
    assert re.search(r"scenario:3: .*no such code", session.stderr())


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("gpu\n name", ":2: a key needs a value"),
        ("mig", ":1: a MIG device needs a gpu before it"),
        ("gpu\n process x", ":2: process PID"),
        ("gpu\n process 1 color=red", ":2: unknown or unreadable option"),
        ("gpu\n hang nvmlInit soon", ":2: hang PATTERN SECONDS"),
        ("gpu\n event 5000 1 xid 79", ":2: event ID"),
        ("event 1 1 xid 79", ":1: an event belongs to a gpu"),
        ("gpu\n minor 1\n minor 2", "a key stands twice"),
        ("gpu\n" * 65, ":65: too many GPUs"),
    ],
)
def test_scenario_that_makes_no_sense(
    nvml_library: Path, tmp_path: Path, text: str, wrong: str
) -> None:
    """The library cannot be initialised with it, and says on stderr which line is wrong."""
    session = NvmlSession(nvml_library, tmp_path, scenarios.healthy(1), init=False)
    session.scenario_path.write_text(text)
    try:
        assert session.outcome("n.nvmlInit()") == "NVMLError_Unknown"
        assert wrong in session.stderr()
    finally:
        session.close()


def test_no_scenario(nvml_library: Path, tmp_path: Path) -> None:
    """Without a scenario the message names the variable."""
    session = NvmlSession(
        nvml_library,
        tmp_path,
        scenarios.healthy(1),
        init=False,
        environment={"FAKENVML_SCENARIO": str(tmp_path / "nothing")},
    )
    try:
        assert session.outcome("n.nvmlInit()") == "NVMLError_Unknown"
        assert "FAKENVML_SCENARIO" in session.stderr()
    finally:
        session.close()


def test_driver_of_2020(nvml_library: Path, tmp_path: Path) -> None:
    """Functions that it lacks are not found by the binding; their first versions work."""
    old = build.library(build.SYMBOLS_AFTER_2020)
    assert old != nvml_library
    session = NvmlSession(old, tmp_path, scenarios.healthy(1))
    try:
        for call in (
            "n.nvmlDeviceGetMemoryInfo(device(0), n.nvmlMemory_v2)",
            "n.nvmlDeviceGetComputeRunningProcesses_v2(device(0))",
            "n.nvmlDeviceGetCurrentClocksEventReasons(device(0))",
            "n.nvmlGpmQueryDeviceSupport(device(0))",
        ):
            assert session.outcome(call) == "NVMLError_FunctionNotFound"
        # without a version the binding raises what is not even one of its own errors
        processes = "n.nvmlDeviceGetComputeRunningProcesses(device(0))"
        assert session.outcome(processes) == "NVMLLibraryMismatchError"
        assert session.ask("n.nvmlDeviceGetMemoryInfo(device(0)).total") == 81_559 << 20
        assert session.ask("n.nvmlDeviceGetCurrentClocksThrottleReasons(device(0))") == 0
    finally:
        session.close()


def test_loaded_by_its_path(nvml_library: Path, tmp_path: Path) -> None:
    """A process that loads it by path needs no search path: the binding then finds it by its name."""
    scenario = tmp_path / "scenario"
    scenarios.healthy(3).write(scenario)
    lines = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); import pynvml as n"
    lines += "; n.nvmlInit(); print(n.nvmlDeviceGetCount())"
    done = subprocess.run(
        [sys.executable, "-c", lines, str(nvml_library)],
        env={**os.environ, "FAKENVML_SCENARIO": str(scenario)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "3\n"


def test_old_consumer_gpu(start: Start) -> None:
    """What it lacks is not supported, and what it has is there."""
    session = start(scenarios.not_supported())
    for call in (
        "n.nvmlDeviceGetTotalEnergyConsumption(device(0))",
        "n.nvmlDeviceGetEccMode(device(0))",
        "n.nvmlDeviceGetMigMode(device(0))",
        "n.nvmlDeviceGetNvLinkState(device(0), 0)",
        "n.nvmlDeviceGetViolationStatus(device(0), 0)",
        "n.nvmlDeviceGetRemappedRows(device(0))",
    ):
        assert session.outcome(call) == "NVMLError_NotSupported"
    assert session.ask("n.nvmlGpmQueryDeviceSupport(device(0)).isSupportedDevice") == 0
    assert session.ask("n.nvmlDeviceGetFanSpeed(device(0))") == 41


def test_ecc_switched_off(start: Start) -> None:
    """With ECC off its counters are not supported, whatever they were."""
    session = start(scenarios.healthy(1).having(0, {"ecc.mode": 0, "ecc.volatile.corrected": 5}))
    assert session.ask("n.nvmlDeviceGetEccMode(device(0))") == [0, 1]
    errors = "n.nvmlDeviceGetTotalEccErrors(device(0), 0, 0)"
    assert session.outcome(errors) == "NVMLError_NotSupported"


@pytest.mark.parametrize("name", sorted(set(SCENARIOS) - {"no-driver", "hung"}))
def test_ready_made_scenario_is_read(start: Start, name: str) -> None:
    """Every ready-made scenario is one that the library understands."""
    session = start(SCENARIOS[name]())
    count = len(SCENARIOS[name]().gpus)
    assert session.ask("n.nvmlDeviceGetCount()") == count
    assert session.stderr() == ""


def test_throttled_gpu(start: Start) -> None:
    """The throttled GPU loses half of the time, at half of its clock; its neighbour none."""
    session = start(scenarios.throttled())
    first, second, least_s, most_s, cool = session.run("""
times = [time.monotonic()]
read = lambda i: n.nvmlDeviceGetViolationStatus(device(i), n.NVML_PERF_POLICY_THERMAL)
first = read(0)
times.append(time.monotonic())
time.sleep(0.1)
times.append(time.monotonic())
second = read(0)
times.append(time.monotonic())
result = [first, second, times[2] - times[1], times[3] - times[0], read(1)]
""")
    lost_ns = second["violationTime"] - first["violationTime"]
    assert least_s * 0.5e9 <= lost_ns + 1
    assert lost_ns - 1 <= most_s * 0.5e9
    assert second["referenceTime"] > first["referenceTime"]
    assert cool["violationTime"] == 0
    assert session.ask("n.nvmlDeviceGetClockInfo(device(0), n.NVML_CLOCK_SM)") == 990
