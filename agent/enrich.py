"""Joins spans to the cgroup, container and pod of the process that made them.

Only resource attributes of the protobuf message are touched; the spans below them are not decoded.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from agent.host import processes
from agent.host.containers import identify
from agent.host.hierarchies import Hierarchies
from agent.host.paths import HostPaths
from agent.kube.describe import describe
from agent.kube.directory import Pods
from agent.telemetry.keys import CGROUP, CONTAINER_ID, HOST_NAME, POD_UID, PROCESS_PID, REASON
from agent.telemetry.model import Sample

_MISSES = "tailcause.enrich.misses"
_CACHED_PROCESSES = 4096


class _Miss(Exception):  # noqa: N818  an outcome that is counted
    """A resource that cannot be joined; the argument is the reason."""


@dataclass(frozen=True)
class _Known:
    """A process as it was looked up; the start time tells it from a later one of the same pid."""

    start_ticks: int
    read_s: float
    attributes: Mapping[str, str]


class Enricher:
    """Adds `tailcause.cgroup.path`, `container.id` and `k8s.pod.uid` where the process is known.

    The process id counts only together with this host's name: a container that reports its own
    pid 1 must not be joined to the host's first process.
    """

    def __init__(
        self,
        paths: HostPaths,
        hierarchies: Hierarchies,
        host_name: str,
        *,
        reread_s: float = 5.0,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths = paths
        self._hierarchies = hierarchies
        self._host_name = host_name
        self._reread_s = reread_s
        self._monotonic_s = monotonic_s
        self._cache: OrderedDict[int, _Known] = OrderedDict()
        self._start_unix_ns = time.time_ns()
        self.pods = Pods()
        """Where resources find their pods: empty, unless somebody fills it."""
        self.joined = 0
        """Spans joined so far."""
        self.misses: Counter[str] = Counter()
        """Spans not joined so far, by reason."""

    def enrich(self, message: trace_service_pb2.ExportTraceServiceRequest) -> None:
        """Add what is known to each resource of a request, in place."""
        for resource_spans in message.resource_spans:
            n_spans = _count(resource_spans)
            miss = self._try(resource_spans.resource)
            if describe(resource_spans.resource, self.pods) or not miss:
                self.joined += n_spans
            else:
                self.misses[miss] += n_spans

    @property
    def seen(self) -> int:
        """Spans that came by so far."""
        return self.joined + self.misses.total()

    def local_pid(self, resource: resource_pb2.Resource) -> int | None:
        """Return the process that a resource names, if it was found on this host."""
        for pair in resource.attributes:
            if pair.key == PROCESS_PID:
                pid = pair.value.int_value
                return pid if pid in self._cache and self._is_here(resource) else None
        return None

    def _is_here(self, resource: resource_pb2.Resource) -> bool:
        return any(
            pair.key == HOST_NAME and pair.value.string_value == self._host_name
            for pair in resource.attributes
        )

    def recent_pids(self, within_s: float = 120.0) -> list[int]:
        """Return the processes that sent spans lately, the latest first."""
        since_s = self._monotonic_s() - within_s
        return [pid for pid, known in reversed(list(self._cache.items())) if known.read_s > since_s]

    def own_samples(self) -> list[Sample]:
        """Return the counts of misses as samples."""
        now = time.time_ns()
        return [
            Sample(_MISSES, count, now, {REASON: reason}, self._start_unix_ns)
            for reason, count in self.misses.items()
        ]

    def _try(self, resource: resource_pb2.Resource) -> str:
        """Add what is known by the process; return why that is nothing, or an empty string."""
        try:
            self._add(resource)
        except _Miss as miss:
            return str(miss)
        return ""

    def _add(self, resource: resource_pb2.Resource) -> None:
        present = {pair.key: pair.value for pair in resource.attributes}
        if CGROUP in present:
            return  # another agent before us has done it
        if PROCESS_PID not in present:
            raise _Miss("no_pid")
        if HOST_NAME not in present:
            raise _Miss("no_host_name")
        if present[HOST_NAME].string_value != self._host_name:
            raise _Miss("other_host")
        for key, value in self._lookup(present[PROCESS_PID].int_value).items():
            if key not in present:
                pair = resource.attributes.add()
                pair.key = key
                pair.value.string_value = value

    def _lookup(self, pid: int) -> Mapping[str, str]:
        if pid <= 0:
            raise _Miss("no_pid")
        known = self._cache.get(pid)
        try:
            started = processes.start_ticks(self._paths, pid)
        except (FileNotFoundError, ProcessLookupError) as exc:
            if known is not None:  # its last spans may come after its end
                return known.attributes
            raise _Miss("no_process") from exc
        except OSError as exc:
            raise _Miss("unreadable") from exc
        now_s = self._monotonic_s()
        if known is None or known.start_ticks != started or now_s - known.read_s > self._reread_s:
            known = _Known(started, now_s, self._read(pid))
            self._remember(pid, known)
        return known.attributes

    def _remember(self, pid: int, known: _Known) -> None:
        self._cache[pid] = known
        self._cache.move_to_end(pid)
        if len(self._cache) > _CACHED_PROCESSES:
            self._cache.popitem(last=False)

    def _read(self, pid: int) -> Mapping[str, str]:
        try:
            if processes.in_nested_pid_namespace(self._paths, pid):
                raise _Miss("other_pid_namespace")
            place = processes.place(self._paths, self._hierarchies, pid)
        except (FileNotFoundError, ProcessLookupError) as exc:
            raise _Miss("no_process") from exc
        except OSError as exc:
            raise _Miss("unreadable") from exc
        attributes = {CGROUP: place.cgroup}
        identity = (
            identify("\n".join(place.all_paths)) if place.cgroup == "/" else identify(place.cgroup)
        )
        if identity.container_id:
            attributes[CONTAINER_ID] = identity.container_id
        if identity.pod_uid:
            attributes[POD_UID] = identity.pod_uid
        return attributes


def _count(resource_spans: trace_pb2.ResourceSpans) -> int:
    return sum(len(scope_spans.spans) for scope_spans in resource_spans.scope_spans)
