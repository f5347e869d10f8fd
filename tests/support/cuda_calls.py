"""The stubs that most tests of the cuda probe call, and what the probe says about a victim's calls."""

from pathlib import Path

from ebpf.apiprobe import ApiOptions
from ebpf.reading import Histogram, Readings
from tests.support.cuda_victim import Victim, build_library

ASKED = ApiOptions(enabled=True, search_every_s=3600.0)
DRIVER = {
    "cuLaunchKernel": "PLAIN",
    "cuStreamSynchronize": "BLOCKING",
    "cuCtxSynchronize": "SPINNING",
}
RUNTIME = {
    "cudaLaunchKernel": "cuLaunchKernel",
    "cudaLaunchKernel_ptsz": "cuLaunchKernel",
    "cudaStreamSynchronize": "cuStreamSynchronize",
    "cudaDeviceSynchronize": "cuCtxSynchronize",
    "cudaGraphLaunch": "cuLaunchKernel+",
    "cudaMemcpyAsync": "PLAIN",
    "cudaMalloc": "PLAIN",
}


def build_runtime(folder: Path) -> Path:
    """Compile a stub of the runtime that calls a stub of the driver, libcuda.so.1 beside it."""
    driver = build_library(folder, "libcuda.so.1", DRIVER)
    return build_library(folder, "libcudart.so.12", RUNTIME, driver)


def calls(readings: Readings, victim: Victim) -> dict[str, int]:
    """Count the calls by API in the victim's cgroup."""
    found = {}
    for reading in readings.series:
        if "api" in reading.labels and reading.labels["cgroup"] == victim.cgroup:
            assert isinstance(reading.value, Histogram)
            found[reading.labels["api"]] = reading.value.count
    return found


def gaps(readings: Readings, victim: Victim) -> Histogram:
    """Return the histogram of gaps between launches."""
    (found,) = [
        reading.value
        for reading in readings.series
        if reading.metric == "gpu.launch.gap" and reading.labels["cgroup"] == victim.cgroup
    ]
    assert isinstance(found, Histogram)
    return found


def triangle(count: int) -> int:
    """Return what `count` calls of a stub's function add up to."""
    return count * (count + 1) // 2
