"""Asking everything that knows about pods, and filling the directory with the answers."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from agent.host import processes
from agent.host.containers import identify
from agent.host.hierarchies import Hierarchies, discover
from agent.host.paths import HostPaths
from agent.kube.cgroups import find_cgroups
from agent.kube.directory import Pods, Use
from agent.kube.errors import KubeletError
from agent.kube.kubelet import Kubelet
from agent.kube.openfiles import gpu_uuids, holders
from agent.kube.podlist import read_pods
from agent.kube.podresources import Allocation, PodResources, physical
from agent.kube.settings import KubeSettings

KUBELET = "kubelet"
POD_RESOURCES = "pod_resources"
OPEN_FILES = "open_files"
ALLOCATED, NVML, OPEN = "allocated", "nvml", "open"
"""How a use of a device is known; the first has the say where more than one knows it."""

_KUBELET_SHARE, _CALL_SHARE = 0.5, 0.2  # of the deadline: one list, two calls, and some to spare
_OPEN_FILES_EVERY = 3
_SEEK_AGAIN_EVERY = 6
_OK = "ok"


class Poll:
    """Asks the sources of the settings when they are due; a source that fails leaves the others."""

    def __init__(
        self,
        settings: KubeSettings,
        pods: Pods,
        paths: HostPaths,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._pods = pods
        self._paths = paths
        self._monotonic_s = monotonic_s
        self._due_s = float("-inf")
        self._rounds = 0
        self._sought: frozenset[str] = frozenset()
        self._resources: PodResources | None = None
        self.allocation = Allocation()
        self.problems: dict[str, KubeletError] = {}
        """What went wrong in the last round, by source."""

    def ask(self) -> bool:
        """Ask all sources if they are due, and tell whether they were."""
        now_s = self._monotonic_s()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._settings.poll_s
        self.problems = {}
        if self._settings.kubelet.url:
            self._try(KUBELET, self._ask_kubelet)
        if self._settings.socket is not None:
            self._try(POD_RESOURCES, self._ask_pod_resources)
        if self._rounds % _OPEN_FILES_EVERY == 0 and (gpus := gpu_uuids(self._paths)):
            self._try(OPEN_FILES, lambda: self._look_at_open_files(gpus))
        self._rounds += 1
        return True

    def close(self) -> None:
        """Close the connection to the kubelet, if there is one."""
        if self._resources is not None:
            self._resources.close()

    def _try(self, source: str, ask: Callable[[], None]) -> None:
        try:
            ask()
        except KubeletError as exc:
            self.problems[source] = exc
            self._pods.note(source, exc.outcome)
        else:
            self._pods.note(source, _OK)

    def _ask_kubelet(self) -> None:
        settings = self._settings
        deadline_s = settings.deadline_s * _KUBELET_SHARE
        body = Kubelet(settings.kubelet, deadline_s, settings.max_body_bytes).pods()
        listed = read_pods(body, settings.labels, settings.max_pods)
        self._pods.update(listed.pods)
        self._drop("too_many", listed.too_many)
        self._drop("unreadable", listed.unreadable)
        self._place()

    def _place(self) -> None:
        """Look for the cgroups of new containers; for those that have none (they have ended) once a minute."""
        missing = frozenset(self._pods.unplaced())
        if missing <= self._sought and self._rounds % _SEEK_AGAIN_EVERY:
            self._pods.place({})
            return
        self._sought = missing
        self._pods.place(find_cgroups(self._hierarchies(), missing))

    def _ask_pod_resources(self) -> None:
        self.allocation = Allocation()
        self.allocation = self._service(self._settings.socket or Path()).read()
        found: dict[str, list[Use]] = defaultdict(list)
        for grant in self.allocation.grants:
            pod = self._pods.named(grant.namespace, grant.pod)
            uid = pod.uid if pod else ""
            use = Use(grant.namespace, grant.pod, grant.container, uid, ALLOCATED)
            for device in (one for devices in grant.devices for one in devices.ids):
                found[physical(device)].append(use)
        self._pods.assign(ALLOCATED, _unique(found))

    def _service(self, socket: Path) -> PodResources:
        if self._resources is None:
            settings = self._settings
            deadline_s = settings.deadline_s * _CALL_SHARE
            self._resources = PodResources(socket, deadline_s, settings.max_body_bytes)
        return self._resources

    def _look_at_open_files(self, gpus: Mapping[int, str]) -> None:
        seen = holders(self._paths, gpus)
        self._drop("process_unreadable", seen.unreadable)
        self._drop("process_too_many", seen.too_many)
        hierarchies = self._hierarchies()
        self._pods.observe(
            OPEN,
            (
                (device, *self._whose(hierarchies, pid))
                for device, pids in seen.pids.items()
                for pid in sorted(pids)
            ),
        )

    def _hierarchies(self) -> Hierarchies:
        try:
            return discover(self._paths)
        except OSError:  # told by the signal `cgroup`
            return Hierarchies(())

    def _whose(self, hierarchies: Hierarchies, pid: int) -> tuple[str, str]:
        """Return the container and pod of a process, as far as its cgroups tell."""
        try:
            place = processes.place(self._paths, hierarchies, pid)
        except OSError:  # it has just ended
            return "", ""
        identity = identify("\n".join(place.all_paths))
        return identity.container_id, identity.pod_uid

    def _drop(self, reason: str, count: int) -> None:
        if count:
            self._pods.dropped[reason] += count


def _unique(found: Mapping[str, list[Use]]) -> dict[str, tuple[Use, ...]]:
    return {device: tuple(dict.fromkeys(uses)) for device, uses in found.items() if uses}
