"""The pods of this node by container, by uid, by name and by GPU.

One thread reads the kubelet and replaces what is known; everybody else looks things up in it. A
lookup never blocks: what is known is one immutable view, swapped whole.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.kube.model import Member, Pod

_MAX_DEPARTED = 4096


@dataclass(frozen=True, slots=True)
class Use:
    """A container that uses a device; `pod_uid` is empty where the kubelet's list lacks the pod."""

    namespace: str
    pod: str
    container: str
    pod_uid: str = ""
    how: str = ""
    """The source: `allocated` by the kubelet, `nvml` or `open`: seen of a process."""


@dataclass(frozen=True)
class _View:
    by_container: Mapping[str, Member] = field(default_factory=dict)
    by_uid: Mapping[str, Member] = field(default_factory=dict)
    by_name: Mapping[tuple[str, str], Member] = field(default_factory=dict)


@dataclass(frozen=True)
class _Devices:
    """Who uses which device, according to one source at one time."""

    read_s: float
    uses: Mapping[str, tuple[Use, ...]]


class Pods:
    """A directory of pods, filled by `update` and `assign`.

    A container that is gone stays known for `linger_s`, for its last spans. Who uses a device is
    forgotten after `device_age_s` without news: the device may be somebody else's by then.
    """

    def __init__(
        self,
        *,
        linger_s: float = 120.0,
        device_age_s: float = 60.0,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._linger_s = linger_s
        self._device_age_s = device_age_s
        self._monotonic_s = monotonic_s
        self._writing = threading.Lock()
        self._view = _View()
        self._departed: dict[str, tuple[float, Member]] = {}
        self._devices: dict[str, _Devices] = {}
        self._cgroups: dict[str, str] = {}
        self._read_s: dict[str, float] = {}
        self.answers: Counter[tuple[str, str]] = Counter()
        """Answers so far, by source and outcome."""
        self.dropped: Counter[str] = Counter()
        """Pods and processes that were not taken in so far, by reason."""

    @property
    def empty(self) -> bool:
        """Tell whether nothing is known of any pod."""
        return not (self._view.by_uid or self._departed or self._devices)

    @property
    def pods(self) -> Sequence[Pod]:
        """Return the pods that the kubelet listed last."""
        return [member.pod for member in self._view.by_name.values()]

    def ages_s(self) -> dict[str, float]:
        """Return how long ago each source gave a good answer, in seconds."""
        now_s = self._monotonic_s()
        return {source: now_s - read_s for source, read_s in self._read_s.items()}

    def note(self, source: str, outcome: str) -> None:
        """Count an answer of a source; a good one makes its age 0."""
        self.answers[source, outcome] += 1
        if outcome == "ok":
            self._read_s[source] = self._monotonic_s()

    def update(self, pods: Iterable[Pod]) -> None:
        """Replace the pods; what is no longer there lingers."""
        by_container: dict[str, Member] = {}
        by_uid: dict[str, Member] = {}
        by_name: dict[tuple[str, str], Member] = {}
        for pod in pods:
            member = by_name[pod.namespace, pod.name] = by_uid[pod.uid] = Member(pod)
            if pod.config_hash:
                by_uid[pod.config_hash] = member
            for container in pod.containers:
                if container.id:
                    by_container[container.id] = Member(pod, container)
        with self._writing:
            before, self._view = self._view, _View(by_container, by_uid, by_name)
            self._depart(before, self._view)

    def _depart(self, before: _View, now: _View) -> None:
        now_s = self._monotonic_s()
        leaving = {
            key: (now_s, member)
            for old, new in ((before.by_container, now.by_container), (before.by_uid, now.by_uid))
            for key, member in old.items()
            if key not in new
        }
        lingering = {
            key: known
            for key, known in self._departed.items()
            if now_s - known[0] <= self._linger_s and key not in now.by_container
        }
        latest = list((lingering | leaving).items())[-_MAX_DEPARTED:]
        self._departed = dict(latest)

    def unplaced(self) -> list[str]:
        """Return the ids of the containers whose cgroup is not known."""
        return [one for one in self._view.by_container if one not in self._cgroups]

    def place(self, cgroups: Mapping[str, str]) -> None:
        """Take up the cgroup paths of containers; those of containers that have gone are forgotten."""
        with self._writing:
            view, departed = self._view.by_container, self._departed
            kept = {k: path for k, path in self._cgroups.items() if k in view or k in departed}
            self._cgroups = {**kept, **cgroups}

    def cgroup(self, container_id: str) -> str:
        """Return the cgroup path of a container, empty if it is not known."""
        return self._cgroups.get(container_id, "")

    def assign(self, source: str, uses: Mapping[str, tuple[Use, ...]]) -> None:
        """Replace what a source says about who uses which device."""
        with self._writing:
            self._devices = {**self._devices, source: _Devices(self._monotonic_s(), uses)}

    def observe(self, how: str, seen: Iterable[tuple[str, str, str]]) -> None:
        """Replace what was seen of processes: device, container id and pod uid of each that uses one."""
        found: dict[str, dict[Use, None]] = defaultdict(dict)
        for device, container_id, pod_uid in seen:
            member = self.member(container_id, pod_uid)
            if member is not None:
                pod, name = member.pod, member.container.name if member.container else ""
                found[device][Use(pod.namespace, pod.name, name, pod.uid, how)] = None
        self.assign(how, {device: tuple(uses) for device, uses in found.items()})

    def member(self, container_id: str = "", pod_uid: str = "") -> Member | None:
        """Return the container of an id, else the pod of a uid, if either is known."""
        view = self._view
        if container_id and (found := view.by_container.get(container_id)):
            return found
        if pod_uid and (found := view.by_uid.get(pod_uid)):
            return found
        return self._gone(container_id) or self._gone(pod_uid)

    def _gone(self, key: str) -> Member | None:
        left_s, member = self._departed.get(key, (0.0, None))
        recent = member is not None and self._monotonic_s() - left_s <= self._linger_s
        return member if recent else None

    def named(self, namespace: str, name: str) -> Pod | None:
        """Return the pod of a name."""
        member = self._view.by_name.get((namespace, name))
        return member.pod if member else None

    def users(self, device: str) -> tuple[Use, ...]:
        """Return the containers that use a GPU or MIG instance, by its UUID; several share it.

        What the kubelet allocated comes first; open devices add containers without a limit. Pods that
        have finished are left out: some kubelets list their devices, which others already have.
        """
        found: dict[tuple[str, str, str], Use] = {}
        for known in self._fresh():
            for use in known.uses.get(device, ()):
                pod = self.named(use.namespace, use.pod)
                if pod is None or not pod.finished:
                    found.setdefault((use.namespace, use.pod, use.container), use)
        return tuple(found.values())

    def devices(self) -> tuple[str, ...]:
        """Return the ids of all devices that somebody uses."""
        ids = dict.fromkeys(device for known in self._fresh() for device in known.uses)
        return tuple(device for device in ids if self.users(device))

    def devices_of(self, member: Member) -> tuple[str, ...]:
        """Return the ids of the devices that a container uses, or any container of a pod."""
        wanted = member.container.name if member.container else None
        return tuple(
            device
            for device in self.devices()
            if any(
                (use.namespace, use.pod) == (member.pod.namespace, member.pod.name)
                and wanted in {None, use.container}
                for use in self.users(device)
            )
        )

    def _fresh(self) -> list[_Devices]:
        """Return what the sources said lately, the kubelet's word first."""
        now_s = self._monotonic_s()
        return [
            known
            for _, known in sorted(self._devices.items(), key=lambda item: item[0])
            if now_s - known.read_s <= self._device_age_s
        ]
