"""CUDA API calls: launches, waits for the GPU, copies, memory; runtime and driver, without counting one call twice."""

from ebpf.apiprobe import Api, ApiOptions, ApiProbe, ApiSet
from ebpf.libbpf import Object

_LAUNCHES = (
    "cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "cudaGraphLaunch",
    "cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuGraphLaunch",
)  # fmt: skip
_WAITS = (
    "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize",
    "cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize",
)  # fmt: skip
_COPIES = (
    "cudaMemcpyAsync",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
)
_WAITING_COPIES = ("cudaMemcpy", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoD_v2")
_ALLOCATIONS = (
    "cudaMalloc", "cudaMallocAsync", "cudaMallocHost", "cudaHostAlloc", "cudaMallocManaged",
    "cuMemAlloc_v2", "cuMemAllocAsync", "cuMemHostAlloc",
)  # fmt: skip
_RELEASES = (
    "cudaFree",
    "cudaFreeAsync",
    "cudaFreeHost",
    "cuMemFree_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
)

CUDA = ApiSet(
    name="cuda",
    apis=(
        *(Api(name, "launch") for name in _LAUNCHES),
        *(Api(name, "sync", waits=True) for name in _WAITS),
        *(Api(name, "copy") for name in _COPIES),
        *(Api(name, "copy", waits=True) for name in _WAITING_COPIES),
        *(Api(name, "malloc") for name in _ALLOCATIONS),
        *(Api(name, "free") for name in _RELEASES),
    ),
    libraries=("libcudart.so", "libcuda.so"),
    marks=("cudaLaunchKernel", "cuLaunchKernel"),
    metric="gpu.api.time",
    gap_metric="gpu.launch.gap",
)


class Cuda(ApiProbe):
    """Uprobes on libcudart, libcuda and their static copies."""

    def __init__(self, options: ApiOptions | None = None) -> None:
        super().__init__(CUDA, options)

    def _leave_behind(self, opened: Object) -> None:
        """Threads that are in a waiting call now would count as waiting for ever."""
        opened.read_iterator(opened.attach_iterator("forget_waiting"))
