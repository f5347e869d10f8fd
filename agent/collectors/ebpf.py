"""What the kernel's probes counted: by cgroup, and whom each cgroup waited for."""

import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import ClassVar

from agent.collectors.base import CollectorContext, NoData
from agent.collectors.ebpf_names import ATTRIBUTE_OF, METRIC_OF
from agent.host.containers import identify
from agent.probelist import ProbeSettings
from agent.probes import Probes, ProbeStatus
from agent.telemetry.keys import CGROUP, CONTAINER_ID, PIPE, REASON
from agent.telemetry.model import Attributes, Buckets, Sample, SignalState
from agent.telemetry.names import BY_NAME, POD_KEYS
from ebpf.busiest import Busiest
from ebpf.reading import Histogram, Reading, Readings
from ebpf.session import State

MAX_CGROUPS = 256
MAX_SERIES = 512
"""Of each metric that is not by cgroup alone, such as the matrix."""
_FIRST_EXPONENT = -29  # the slot before it holds all that is shorter
_DROPPED = "tailcause.pipe.dropped"
_PIPE_NAME = "ebpf"
_REMEDY = "`tailcause-agent doctor` says what each probe needs"
_SIGNAL_STATE = {
    State.NO_PERMISSION: SignalState.NO_PERMISSION,
    State.FAILED: SignalState.FAILED,
    State.OFF: SignalState.DISABLED,
    State.SHED: SignalState.DISABLED,
}

Key = tuple[tuple[str, str], ...]
Value = float | Histogram


class EbpfCollector:
    """Starts the probes at its first collection and reads them at each."""

    METRICS: ClassVar[tuple[str, ...]] = (
        *dict.fromkeys(METRIC_OF.values()),
        _DROPPED,
    )

    def __init__(self, context: CollectorContext) -> None:
        self._context = context
        self._probes = context.probes or Probes(ProbeSettings(), paths=context.paths)
        self._own = context.probes is None
        if self._own:
            weakref.finalize(self, self._probes.off, "stopped")
        self._busiest: dict[str, Busiest[Key]] = {}
        self._unknown: Counter[str] = Counter()
        self._left_out = 0
        self._attributes: dict[Key, Attributes] = {}
        self._start_unix_ns = context.now_unix_ns()

    def collect(self) -> list[Sample]:
        """Return what all probes counted; raises `NoData` when none of them is on."""
        self._start()
        readings = self._probes.read()
        self._left_out = sum(one.left_out for one in readings.values())
        status = self._probes.status()
        known, self._attributes = self._attributes, {}
        samples = [s for name, one in readings.items() for s in self._of(one, status[name], known)]
        if not samples:
            first = next(iter(status.values()))
            state = _SIGNAL_STATE.get(first.state, SignalState.NOT_SUPPORTED)
            raise NoData(first.reason or "no probe counted anything yet", state, remedy=_REMEDY)
        return [*samples, *self._losses()]

    def close(self) -> None:
        """Detach the probes that this collector made itself."""
        if self._own:
            self._probes.off("stopped")

    def _start(self) -> None:
        """Attach the probes unless they are; raises `NoData` where there can be none."""
        if self._probes.started:
            return
        if reason := self._probes.foreign_kernel():
            raise NoData(reason, remedy="give --path.procfs, or --no-ebpf")
        if not self._probes.start():
            remedy = "give no --no-ebpf and no --unprivileged, and leave [ebpf] enabled"
            raise NoData(self._probes.off_reason, SignalState.DISABLED, remedy=remedy)

    def _of(
        self, readings: Readings, status: ProbeStatus, known: Mapping[Key, Attributes]
    ) -> Iterator[Sample]:
        """Yield the samples of a probe; attributes that are known stay the same objects."""
        now = self._context.now_unix_ns()
        for metric, series in self._by_metric(readings.series).items():
            for key in self._bounded(metric, series):
                value = series[key]
                attributes = known.get(key) or _with_container(dict(key))
                self._attributes[key] = attributes
                if isinstance(value, Histogram):
                    buckets = Buckets(_FIRST_EXPONENT, value.slots[1:], value.slots[0], value.sum_s)
                    yield Sample(
                        metric, value.count, now, attributes, status.attached_unix_ns, buckets
                    )
                else:
                    yield Sample(metric, value, now, attributes, status.attached_unix_ns)

    def _by_metric(self, readings: tuple[Reading, ...]) -> dict[str, dict[Key, Value]]:
        """Group the readings; two of the same labels (a cgroup that was made again) are one series."""
        found: dict[str, dict[Key, Value]] = defaultdict(dict)
        for reading in readings:
            metric = METRIC_OF.get(reading.metric)
            if metric is None or not reading.labels.keys() <= ATTRIBUTE_OF.keys():
                self._unknown[reading.metric] += 1
                continue
            key = tuple((ATTRIBUTE_OF[name], text) for name, text in reading.labels.items())
            before = found[metric].get(key)
            found[metric][key] = reading.value if before is None else _added(before, reading.value)
        return found

    def _bounded(self, metric: str, series: Mapping[Key, Value]) -> set[Key]:
        by_cgroup = set(BY_NAME[metric].attributes) <= {CGROUP, CONTAINER_ID, *POD_KEYS}
        busiest = self._busiest.get(metric)
        if busiest is None:
            busiest = self._busiest[metric] = Busiest(MAX_CGROUPS if by_cgroup else MAX_SERIES)
        return busiest.pick({key: _size(value) for key, value in series.items()})

    def _losses(self) -> Iterator[Sample]:
        now = self._context.now_unix_ns()
        overflow = self._left_out + sum(busiest.overflow for busiest in self._busiest.values())
        unknown = sum(self._unknown.values())
        for reason, count in (("too_many", overflow), ("unknown_metric", unknown)):
            if count:
                keys = {PIPE: _PIPE_NAME, REASON: reason}
                yield Sample(_DROPPED, count, now, keys, self._start_unix_ns)


def _size(value: Value) -> float:
    return value.sum_s if isinstance(value, Histogram) else value


def _added(one: Value, other: Value) -> Value:
    if isinstance(one, Histogram) and isinstance(other, Histogram):
        slots = tuple(a + b for a, b in zip(one.slots, other.slots, strict=True))
        return Histogram(slots, one.sum_s + other.sum_s)
    return _size(one) + _size(other)


def _with_container(attributes: dict[str, str]) -> Attributes:
    if set(attributes) == {CGROUP}:
        container_id = identify(attributes[CGROUP]).container_id
        if container_id:
            attributes[CONTAINER_ID] = container_id
    return attributes
