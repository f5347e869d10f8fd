"""Loads probes, keeps their state, reads them, and leaves nothing behind.

One session a process. A probe that cannot be attached is a named state, not an error: the others go on.
"""

import logging
import platform
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ebpf import layout
from ebpf.cgroupids import CgroupPaths, find_hierarchy
from ebpf.errors import (
    EbpfError,
    NoBtfError,
    NoPermissionError,
    NotSupportedError,
    SwitchedOffError,
)
from ebpf.libbpf import Library
from ebpf.maps import Map
from ebpf.probe import Forgets, Kernel, Machine, Probe
from ebpf.reading import Readings
from ebpf.registry import FALLBACKS
from ebpf.slotpool import SlotPool
from ebpf.syscalls import wait_classes

_log = logging.getLogger(__name__)

BUILT = Path(__file__).parent / "built"
BTF = Path("/sys/kernel/btf/vmlinux")
_ANYBODY = 1  # TC_ANYBODY


class Loader(StrEnum):
    """What loads the probes."""

    AUTO = "auto"
    """libbpf; bcc, with the probes that it has, where the kernel has no BTF."""
    LIBBPF = "libbpf"
    BCC = "bcc"


class State(StrEnum):
    """What can be said of a probe."""

    ON = "on"
    OFF = "off"
    NOT_SUPPORTED = "not_supported"
    NO_PERMISSION = "no_permission"
    FAILED = "failed"
    SHED = "shed"


@dataclass
class Slot:
    """One probe of a session and what became of it."""

    probe: Probe
    state: State = State.OFF
    reason: str = ""


class Session:
    """All probes of this process; `start` attaches in the given order, `stop` detaches in the reverse one."""

    def __init__(
        self,
        probes: Sequence[Probe],
        built: Path = BUILT,
        proc: Path = Path("/proc"),
        *,
        loader: Loader = Loader.AUTO,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.slots: dict[str, Slot] = {probe.name: Slot(probe) for probe in probes}
        self.loader = loader
        self._built, self._proc, self._clock = built, proc, clock
        self._kernel: Kernel | None = None
        self._machine: Machine | None = None
        self._pool: SlotPool | None = None
        self._generation = 0
        self.unwatched = 0
        """How many of the processes last asked for found no room to be watched."""

    def start(self) -> None:
        """Attach every probe; afterwards each slot says what became of it."""
        try:
            self._kernel = self._open_kernel()
        except NoBtfError as exc:
            self._all_are(exc)
            if self.loader is not Loader.LIBBPF:
                self._fall_back()
            return
        except EbpfError as exc:
            self._all_are(exc)
            return
        self.loader = Loader.LIBBPF
        for name in self.slots:
            self.attach(name)

    def attach(self, name: str) -> State:
        """Attach one probe (again); return its state."""
        slot = self.slots[name]
        fallback = FALLBACKS.get(name)
        if slot.state is State.ON:
            return slot.state
        try:
            if fallback is None and self._kernel is not None:
                slot.probe.attach(self._kernel)
            elif fallback is not None and self._machine is not None:
                ready = fallback()
                ready.attach(self._machine)
                slot.probe = ready
            else:
                return slot.state
        except EbpfError as exc:
            slot.state, slot.reason = _state_of(exc), str(exc)
            level = logging.WARNING if slot.state is State.FAILED else logging.DEBUG
            _log.log(level, "probe not attached probe=%s state=%s reason=%s", name, slot.state, exc)
        else:
            slot.state, slot.reason = State.ON, ""
        return slot.state

    def detach(self, name: str, state: State = State.OFF, reason: str = "") -> None:
        """Detach one probe and say why."""
        slot = self.slots[name]
        if slot.state is State.ON:
            slot.probe.detach()
            slot.state, slot.reason = state, reason

    def stop(self) -> None:
        """Detach everything; harmless when repeated."""
        for name in reversed(self.slots):
            self.detach(name)
        if self._kernel is not None:
            self._kernel.close()
            self._pool = SlotPool(CgroupPaths(self._kernel.cgroups.mount), self._forget)

    def watch(self, pids: Iterable[int]) -> None:
        """Divide the waits of all threads of these processes (and of no others but those that opened spans)."""
        watched = self._shared("watched")
        generation = self._shared("watch_generation")
        if watched is None or generation is None:
            return
        asked = sorted(set(pids))
        self.unwatched = max(0, len(asked) - watched.max_entries)
        wanted = {struct.pack("=I", pid) for pid in asked[: watched.max_entries]}
        for key in set(watched.keys()) - wanted:
            watched.delete(key)
        if wanted:
            generation.update(struct.pack("=I", _ANYBODY), struct.pack("=I", 1))
        for key in wanted:
            watched.update(key, struct.pack("=I", 1))
        self._generation += 1
        generation.update(struct.pack("=I", 0), struct.pack("=I", self._generation))

    def read(self) -> Mapping[str, Readings]:
        """Read every attached probe; the cgroups' names are brought up to date first."""
        self._name_slots()
        found: dict[str, Readings] = {}
        for name, slot in self.slots.items():
            if slot.state is not State.ON:
                continue
            try:
                found[name] = slot.probe.read()
            except EbpfError as exc:
                _log.warning("probe failed probe=%s reason=%s", name, exc)
                self.detach(name, State.FAILED, str(exc))
        return found

    def programs(self) -> Mapping[str, Mapping[str, int]]:
        """Return probe name → program name → file descriptor of all that is loaded."""
        return {
            name: slot.probe.programs()
            for name, slot in self.slots.items()
            if slot.state is State.ON
        }

    @property
    def library(self) -> Library | None:
        """The library, once started."""
        return self._kernel.library if self._kernel else None

    def _open_kernel(self) -> Kernel:
        if self.loader is Loader.BCC:
            raise NoBtfError("not with the bcc loader: this probe needs BTF")
        if not BTF.exists():
            raise NoBtfError("this kernel has no BTF (CONFIG_DEBUG_INFO_BTF)")
        if not (self._built / "sched.bpf.o").exists():
            raise NotSupportedError(
                "the probes are not compiled: run `python -m ebpf.build` (it needs clang)"
            )
        cgroups = find_hierarchy(self._proc)
        self._pool = SlotPool(CgroupPaths(cgroups.mount), self._forget)
        return Kernel(
            library=Library(),
            objects=self._built,
            cgroups=cgroups,
            release=kernel_release(),
            config=layout.config(cgroups.hierarchy, wait_classes()),
            shared={},
            slot_paths={layout.OTHER_SLOT: "other", layout.IDLE_SLOT: "idle"},
            name_slots=self._name_new_slots,
        )

    def _all_are(self, error: EbpfError) -> None:
        for slot in self.slots.values():
            slot.state, slot.reason = _state_of(error), str(error)

    def _fall_back(self) -> None:
        """Add the probes of the bcc loader; they have names and states of their own."""
        self.loader = Loader.BCC
        try:
            self._machine = Machine(find_hierarchy(self._proc), kernel_release())
        except EbpfError as exc:
            self._all_are(exc)
            return
        for name, make in FALLBACKS.items():
            self.slots[name] = Slot(make())
            self.attach(name)

    def _name_slots(self) -> None:
        """Give new slots their cgroup's path, and take back the slots of cgroups that are gone."""
        slots, free = self._shared("cgroup_slots"), self._shared("free_slots")
        if slots is None or free is None or self._kernel is None or self._pool is None:
            return
        self._kernel.unnamed.clear()
        self._pool.update(slots, free, self._kernel.slot_paths, self._clock())

    def _name_new_slots(self) -> None:
        slots = self._shared("cgroup_slots")
        if slots is not None and self._kernel is not None and self._pool is not None:
            self._pool.name_new(slots, self._kernel.slot_paths)

    def _forget(self, slots: frozenset[int]) -> None:
        for slot in self.slots.values():
            if slot.state is State.ON and isinstance(slot.probe, Forgets):
                slot.probe.forget(slots)

    def _shared(self, name: str) -> Map | None:
        return self._kernel.shared.get(name) if self._kernel else None


def kernel_release() -> tuple[int, int]:
    """Return the running kernel's major and minor number."""
    major, minor = platform.release().split(".")[:2]
    return int(major), int("".join(filter(str.isdigit, minor)) or 0)


def _state_of(error: EbpfError) -> State:
    if isinstance(error, NoPermissionError):
        return State.NO_PERMISSION
    if isinstance(error, NotSupportedError):
        return State.NOT_SUPPORTED
    if isinstance(error, SwitchedOffError):
        return State.OFF
    return State.FAILED
