"""Which processes use a GPU, how much of it, and the cgroup, container and pod that each lives in.

Source: NVML API reference, "nvmlDeviceGetComputeRunningProcesses" and "nvmlDeviceGetProcessUtilization".
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from agent.gpu.fields import PERCENT, Value
from agent.host import processes
from agent.host.containers import identify
from agent.host.hierarchies import Hierarchies, discover
from agent.host.paths import HostPaths
from agent.telemetry.keys import CGROUP, CONTAINER_ID, POD_UID, PROCESS_PID
from agent.telemetry.model import Attributes

MAX_PROCESSES = 64
_CACHED = 1024


class Places:
    """Where processes live, as attributes; shared by the threads of all devices.

    A process is known by its id and start, so that an id that is used again is looked up afresh.
    """

    def __init__(self, paths: HostPaths) -> None:
        self._paths = paths
        self._hierarchies: Hierarchies | None = None
        self._known: OrderedDict[tuple[int, int], Attributes] = OrderedDict()

    def of(self, pid: int) -> Attributes:
        """Return the attributes of a process; its id alone where it cannot be found on this host."""
        own: Attributes = {PROCESS_PID: pid}
        try:
            key = pid, processes.start_ticks(self._paths, pid)
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = {**own, **self._look_up(pid)}
                if len(self._known) > _CACHED:
                    self._known.popitem(last=False)
        except (OSError, ValueError):  # it has just ended, or belongs to another host's procfs
            return own
        return known

    def _look_up(self, pid: int) -> dict[str, str]:
        if self._hierarchies is None:
            self._hierarchies = discover(self._paths)
        path = processes.place(self._paths, self._hierarchies, pid).cgroup
        identity = identify(path)
        found = {CGROUP: path, CONTAINER_ID: identity.container_id, POD_UID: identity.pod_uid}
        return {key: value for key, value in found.items() if value}


class GpuProcesses:
    """The processes of one device; those past the bound are counted in `overflow`."""

    def __init__(self, places: Places, *, utilization: bool = True) -> None:
        self._places = places
        self._utilization = utilization
        self._seen_us = 0
        self.overflow = 0

    def read(self, nvml: Any, device: Any) -> Iterator[Value]:
        """Yield memory and SM time of each process; raises `NVMLError` where the GPU does not tell."""
        used = _memory_by_pid(nvml, device)
        busy = self._busy_by_pid(nvml, device) if self._utilization else {}
        ranked = sorted(used.keys() | busy.keys(), key=lambda pid: (-(used.get(pid) or 0), pid))
        self.overflow += max(0, len(ranked) - MAX_PROCESSES)
        for pid in ranked[:MAX_PROCESSES]:
            attributes = self._places.of(pid)
            memory = used.get(pid)
            if memory is not None:
                yield "tailcause.gpu.process.memory", memory, attributes
            if pid in busy:
                yield "tailcause.gpu.process.utilization", busy[pid] * PERCENT, attributes

    def _busy_by_pid(self, nvml: Any, device: Any) -> dict[int, float]:
        """Return the mean percentage of the driver's samples since the last call."""
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(device, self._seen_us)
        except nvml.NVMLError as exc:
            # no process ran since; or not on this chip; the binding raises "success" for no samples
            if exc.value in {nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND}:
                return {}
            if exc.value in {nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND}:
                self._utilization = False
                return {}
            raise
        percents: dict[int, list[int]] = {}
        for sample in samples:
            if sample.timeStamp > self._seen_us and sample.pid:
                percents.setdefault(sample.pid, []).append(sample.smUtil)
        self._seen_us = max((sample.timeStamp for sample in samples), default=self._seen_us)
        return {pid: sum(found) / len(found) for pid, found in percents.items()}


def _memory_by_pid(nvml: Any, device: Any) -> dict[int, int | None]:
    """Return the bytes of each process, None where the driver does not tell them; one may do both kinds of work."""
    used: dict[int, int | None] = {}
    for kind in ("Compute", "Graphics"):
        for process in _running(nvml, device, kind):
            if process.pid:
                used[process.pid] = process.usedGpuMemory
    return used


def _running(nvml: Any, device: Any, kind: str) -> list[Any]:
    newest = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_v3")
    try:
        found: list[Any] = newest(device)
    except nvml.NVMLError_FunctionNotFound:  # drivers before R510
        found = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_v2")(device)
    except nvml.NVMLError_NotSupported:
        if kind == "Compute":
            raise
        return []
    return found
