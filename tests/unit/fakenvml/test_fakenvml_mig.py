"""MIG devices, their instances and processes, and GPU performance monitoring."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernels.fakenvml import scenarios
from kernels.fakenvml.scenario import Ramp, Scenario
from kernels.fakenvml.scenarios import mig_uuid
from tests.support.nvml_session import NvmlSession

Start = Callable[[Scenario], NvmlSession]


@pytest.fixture(scope="module")
def node(nvml_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NvmlSession]:
    """Start one process over two GPUs, the first cut into three MIG devices."""
    scenario = scenarios.mig(gpus=2)
    session = NvmlSession(nvml_library, tmp_path_factory.mktemp("mig"), scenario)
    yield session
    session.close()


def test_mode_and_devices(node: NvmlSession) -> None:
    """MIG devices are counted and found by index; beyond them nothing is found."""
    assert node.ask("[n.nvmlDeviceGetMigMode(device(i)) for i in (0, 1)]") == [[1, 1], [0, 0]]
    assert node.ask("[n.nvmlDeviceGetMaxMigDeviceCount(device(i)) for i in (0, 1)]") == [7, 0]
    uuids = node.ask("[n.nvmlDeviceGetUUID(mig_device(0, i)) for i in range(3)]")
    assert uuids == [mig_uuid(0, i) for i in range(3)]
    assert node.outcome("mig_device(0, 3)") == "NVMLError_NotFound"
    assert node.outcome("mig_device(1, 0)") == "NVMLError_NotFound"


def test_parent(node: NvmlSession) -> None:
    """A MIG device knows its GPU, and says that it is one."""
    parent = (
        "n.nvmlDeviceGetIndex(n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig_device(0, 2)))"
    )
    assert node.ask(parent) == 0
    assert node.ask("n.nvmlDeviceIsMigDeviceHandle(mig_device(0, 1))") == 1
    assert node.ask("n.nvmlDeviceIsMigDeviceHandle(device(0))") == 0
    wrong = "n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device(0))"
    assert node.outcome(wrong) == "NVMLError_InvalidArgument"


def test_handle_by_uuid(node: NvmlSession) -> None:
    """A MIG device is found by its UUID."""
    found = f"n.nvmlDeviceGetName(n.nvmlDeviceGetHandleByUUID({mig_uuid(0, 1).encode()!r}))"
    assert node.ask(found) == "NVIDIA H100 80GB HBM3 MIG 2g.20gb"


def test_ids_and_attributes(node: NvmlSession) -> None:
    """The ids of its instances and what it has got of the GPU."""
    assert node.ask("n.nvmlDeviceGetGpuInstanceId(mig_device(0, 1))") == 2
    assert node.ask("n.nvmlDeviceGetComputeInstanceId(mig_device(0, 1))") == 0
    assert node.ask("n.nvmlDeviceGetAttributes(mig_device(0, 0))") == {
        "multiprocessorCount": 60,
        "sharedCopyEngineCount": 3,
        "sharedDecoderCount": 3,
        "sharedEncoderCount": 0,
        "sharedJpegCount": 3,
        "sharedOfaCount": 0,
        "gpuInstanceSliceCount": 3,
        "computeInstanceSliceCount": 3,
        "memorySizeMB": 40_000,
    }
    assert node.outcome("n.nvmlDeviceGetAttributes(device(1))") == "NVMLError_NotSupported"


def test_memory_of_its_own(node: NvmlSession) -> None:
    """A MIG device's memory is its own, and what only the GPU has is not supported."""
    assert node.ask("n.nvmlDeviceGetMemoryInfo(mig_device(0, 2)).total") == 10_000 << 20
    power = "n.nvmlDeviceGetPowerUsage(mig_device(0, 2))"
    assert node.outcome(power) == "NVMLError_NotSupported"


def test_whole_gpu_has_no_utilization(node: NvmlSession) -> None:
    """In MIG mode the GPU's utilisation is not supported, its power is."""
    for call in (
        "n.nvmlDeviceGetUtilizationRates(device(0))",
        "n.nvmlDeviceGetEncoderUtilization(device(0))",
        "n.nvmlDeviceGetProcessUtilization(device(0), 0)",
    ):
        assert node.outcome(call) == "NVMLError_NotSupported"
    assert node.ask("n.nvmlDeviceGetPowerUsage(device(0))") == 412_500


def test_processes_by_instance(node: NvmlSession) -> None:
    """The GPU lists all processes with their instances, a MIG device its own."""
    listed = node.ask("n.nvmlDeviceGetComputeRunningProcesses(device(0))")
    found = [(p["pid"], p["gpuInstanceId"], p["computeInstanceId"]) for p in listed]
    assert found == [(5000, 1, 0), (5001, 2, 0), (5002, 3, 0)]
    own = node.ask("n.nvmlDeviceGetComputeRunningProcesses(mig_device(0, 1))")
    assert [p["pid"] for p in own] == [5001]


def test_gpu_instances(node: NvmlSession) -> None:
    """GPU instances are found by id and by profile, with where they lie."""
    info = node.run("""
info = n.nvmlGpuInstanceGetInfo(n.nvmlDeviceGetGpuInstanceById(device(0), 2))
result = [info.id, info.profileId, info.placement.start, info.placement.size,
          n.nvmlDeviceGetIndex(info.device)]
""")
    assert info == [2, 14, 4, 2, 0]
    by_profile = node.run("""
found, count = (n.c_nvmlGpuInstance_t * 7)(), ctypes.c_uint()
n.nvmlDeviceGetGpuInstances(device(0), 19, found, ctypes.byref(count))
result = [n.nvmlGpuInstanceGetInfo(found[i]).id for i in range(count.value)]
""")
    assert by_profile == [3]
    assert node.outcome("n.nvmlDeviceGetGpuInstanceById(device(0), 9)") == "NVMLError_NotFound"


def test_compute_instances(node: NvmlSession) -> None:
    """A compute instance names its GPU instance; a handle of one kind is not one of the other."""
    info = node.run("""
instance = n.nvmlDeviceGetGpuInstanceById(device(0), 1)
compute = n.nvmlGpuInstanceGetComputeInstanceById(instance, 0)
info = n.nvmlComputeInstanceGetInfo(compute)
result = [info.id, info.profileId, info.placement.size, n.nvmlGpuInstanceGetInfo(info.gpuInstance).id]
""")
    assert info == [0, 2, 3, 1]
    mixed = "n.nvmlGpuInstanceGetInfo(ctypes.cast(compute, n.c_nvmlGpuInstance_t))"
    assert node.outcome(mixed) == "NVMLError_InvalidArgument"


def test_lost_gpu_takes_its_mig_devices(start: Start) -> None:
    """When the GPU is gone, so is everything cut out of it."""
    session = start(scenarios.mig(gpus=1))
    session.run("mig = mig_device(0, 0)")
    lost = scenarios.lost().faults + scenarios.lost().gpus[0].faults
    scenario = scenarios.mig(gpus=1)
    session.stage(scenario.with_gpu(0, scenario.gpus[0].faulty(*lost)))
    assert session.outcome("n.nvmlDeviceGetMemoryInfo(mig)") == "NVMLError_GpuIsLost"


def test_layout_changed_under_way(start: Start) -> None:
    """A MIG device that was taken apart leaves a handle that is invalid, not a crash."""
    session = start(scenarios.mig(("3g.40gb", "3g.40gb"), gpus=1))
    session.run("old = mig_device(0, 1)")
    session.stage(scenarios.mig(("7g.80gb",), gpus=1))
    assert session.outcome("n.nvmlDeviceGetMemoryInfo(old)") == "NVMLError_InvalidArgument"
    assert session.ask("n.nvmlDeviceGetAttributes(mig_device(0, 0)).multiprocessorCount") == 132


GPM = """
def metrics(take, *ids):
    samples = [n.nvmlGpmSampleAlloc() for _ in range(2)]
    for sample in samples:
        take(sample)
    get = n.c_nvmlGpmMetricsGet_t(version=n.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(ids))
    get.sample1, get.sample2 = samples
    for i, id in enumerate(ids):
        get.metrics[i].metricId = id
    try:
        n.nvmlGpmMetricsGet(get)
    finally:
        for sample in samples:
            n.nvmlGpmSampleFree(sample)
    return [(get.metrics[i].nvmlReturn, get.metrics[i].value) for i in range(len(ids))]
"""


def test_gpm_metrics(start: Start) -> None:
    """Between two samples there are metrics; one that the chip lacks has a code of its own."""
    session = start(scenarios.healthy(1).having(0, {"gpm.2": 55.5, "gpm.10": 34.25}))
    session.run(GPM)
    assert session.ask("n.nvmlGpmQueryDeviceSupport(device(0)).isSupportedDevice") == 1
    take = "lambda sample: n.nvmlGpmSampleGet(device(0), sample)"
    assert session.ask(f"metrics({take}, 2, 10, 8)") == [[0, 55.5], [0, 34.25], [3, 0.0]]
    assert session.status().gpm_samples == 0


def test_gpm_metric_that_moves(start: Start) -> None:
    """A metric lies between its values at the two samples."""
    session = start(scenarios.healthy(1).having(0, {"gpm.2": Ramp(0, 10)}))
    session.run(GPM)
    take = "lambda sample: (time.sleep(0.05), n.nvmlGpmSampleGet(device(0), sample))"
    began = session.ask("time.monotonic()")
    ((code, value),) = session.ask(f"metrics({take}, 2)")
    ended = session.ask("time.monotonic()")
    epoch = float(session.scenario_path.read_text().split()[1])
    assert code == 0
    assert 10 * (began - epoch) < value < 10 * (ended - epoch)


def test_gpm_of_a_mig_device(node: NvmlSession) -> None:
    """In MIG mode a GPU instance is sampled instead of the GPU."""
    node.run(GPM)
    take = "lambda sample: n.nvmlGpmMigSampleGet(device(0), 2, sample)"
    assert node.ask(f"metrics({take}, 2, 10)") == [[0, 40.0], [0, 20.0]]
    whole = "metrics(lambda sample: n.nvmlGpmSampleGet(device(0), sample), 2)"
    assert node.outcome(whole) == "NVMLError_NotSupported"


def test_gpm_sample_that_was_never_taken(start: Start) -> None:
    """Metrics of empty, freed or invented samples are refused."""
    session = start(scenarios.healthy(1))
    session.run(GPM)
    assert session.outcome("metrics(lambda sample: None, 2)") == "NVMLError_InvalidArgument"
    session.run("sample = n.nvmlGpmSampleAlloc()\nn.nvmlGpmSampleFree(sample)")
    assert session.outcome("n.nvmlGpmSampleFree(sample)") == "NVMLError_InvalidArgument"
    assert session.outcome("n.nvmlGpmSampleGet(device(0), sample)") == "NVMLError_InvalidArgument"
