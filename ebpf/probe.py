"""What every probe is: attach, read, detach. One file a probe under `probes/`, one line in `registry.py`."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from ebpf.cgroupids import Mounted
from ebpf.layout import FIRST_FREE_SLOT
from ebpf.libbpf import Library, Object
from ebpf.maps import Map
from ebpf.reading import Readings

CGROUP_MAPS = ("cgroup_slots", "free_slots")


@dataclass
class Machine:
    """What is known of this machine without loading anything."""

    cgroups: Mounted
    release: tuple[int, int]


@dataclass
class Kernel(Machine):
    """What probes share: the library, the compiled objects, the cgroups' names and maps by name.

    `shared` holds the maps that more than one probe uses; the first to load a map adds it. `name_slots` gives slots that
    have none yet their name in `slot_paths`.
    """

    library: Library
    objects: Path
    config: bytes
    shared: dict[str, Map]
    slot_paths: dict[int, str]
    name_slots: Callable[[], None]
    unnamed: set[int] = field(default_factory=set)
    """Slots that had no cgroup when they were last asked for; nobody asks twice between two readings."""

    def open(self, probe: str) -> Object:
        """Open a probe's compiled object, configured and with the shared maps in place."""
        found = Object(self.library, self.objects / f"{probe}.bpf.o", self.shared)
        found.configure(".rodata", self.config)
        return found

    def share_cgroups(self, opened: Object) -> None:
        """Keep the cgroups' slots of the first object that has any: for all probes, until `close`."""
        if CGROUP_MAPS[0] in self.shared:
            return
        for name in CGROUP_MAPS:
            self.shared[name] = opened.map(name).duplicate()
        free = self.shared[CGROUP_MAPS[1]]
        for slot in range(FIRST_FREE_SLOT, free.max_entries):
            free.update(None, struct.pack("=I", slot))

    def close(self) -> None:
        """Let go of the slots and of their names, once every probe is detached."""
        for name in CGROUP_MAPS:
            if name in self.shared:
                self.shared.pop(name).close()
        for slot in [slot for slot in self.slot_paths if slot >= FIRST_FREE_SLOT]:
            del self.slot_paths[slot]

    def cgroup(self, slot: int) -> str:
        """Return the path of the cgroup behind a slot; "idle" and "other" stand for no cgroup and for the rest."""
        if slot not in self.slot_paths and slot not in self.unnamed:
            self.name_slots()  # it is newer than the names
            self.unnamed.add(slot)
        return self.slot_paths.get(slot, "other")


class Probe(Protocol):
    """One probe; `attach` raises an EbpfError that says what is missing, and leaves nothing behind then."""

    name: str

    def attach(self, kernel: Kernel) -> None:
        """Load and attach."""
        ...

    def read(self) -> Readings:
        """Return everything counted since `attach`."""
        ...

    def programs(self) -> Mapping[str, int]:
        """Return the file descriptors of the loaded programs, by name."""
        ...

    def detach(self) -> None:
        """Detach and unload; harmless when not attached."""
        ...


class Fallback(Probe, Protocol):
    """A probe of the loader for kernels without BTF: it gets no library and no compiled objects."""

    def attach(self, kernel: Machine) -> None:
        """Load and attach."""
        ...


@runtime_checkable
class Forgets(Protocol):
    """What every probe that keeps numbers by cgroup slot must have: slots are given to other cgroups in time."""

    def forget(self, slots: frozenset[int]) -> None:
        """Clear everything that was counted under these slots; repeated once, a while later."""
        ...
