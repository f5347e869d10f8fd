"""Finds the files that carry a library's functions, among those that running processes have mapped.

By name (libcudart.so.12), and where a runtime was linked statically: in executables, and in any shared object of a
process that maps one by name. Files are opened through the process (/proc/PID/root, /proc/PID/exe), so that those of
containers are found and a path is never looked up in our own mount namespace; what is opened must be what is mapped.
A process may map its libraries late, so the search goes on, a bounded piece at a time. A process is looked at again after as
long as it has been known, and every minute in the end: it maps what it needs when it begins.
"""

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ebpf.elf import Symbol, build_id, functions, mentions
from ebpf.errors import NotSupportedError

_MAPPED = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) ..x. \S+ ([0-9a-f]+):([0-9a-f]+) (\d+) +(/.*)$", re.MULTILINE
)
_DELETED = b" (deleted)"
_YOUNG_S = 1.0
"""A process that has been known for less is looked at in every search."""
_OWN_DESCRIPTORS = Path("/proc/self/fd")

Place = tuple[int, int]
"""Device and inode, as /proc/PID/maps has them."""


@dataclass(frozen=True)
class Wanted:
    """What to look for."""

    libraries: tuple[str, ...]
    """How the files' names begin, such as "libcudart.so"."""
    functions: frozenset[str]
    marks: tuple[str, ...]
    """Functions that every copy of the library has: tells a file with a static copy from all the others."""


@dataclass(frozen=True)
class Limits:
    """How far one search goes."""

    search_s: float = 0.05
    again_s: float = 60.0
    """The longest time between two looks at one process."""
    maps_bytes: int = 8 << 20
    files: int = 64
    """Carriers at a time; those beyond are counted and left alone."""


@dataclass(frozen=True)
class FileId:
    """One build of one file; two containers may have the same."""

    device: int
    inode: int
    build_id: str


@dataclass(frozen=True)
class Carrier:
    """A file that carries wanted functions."""

    identity: FileId
    path: str
    """As the first process that was seen with it has it."""
    pid: int
    functions: tuple[Symbol, ...]


@dataclass
class Counts:
    """What a search could not do."""

    unreadable: int = 0
    too_many: int = 0
    not_elf: int = 0


@dataclass(frozen=True)
class _Mapping:
    place: Place
    path: str
    ways: tuple[str, ...]


@dataclass(slots=True)
class _Looks:
    """When a process was first looked at, and when last."""

    first_s: float
    last_s: float

    def due(self, now_s: float, most_s: float) -> bool:
        """Tell whether it is to be looked at again."""
        known_s = self.last_s - self.first_s
        return known_s < _YOUNG_S or now_s - self.last_s >= min(known_s, most_s)


Visit = Callable[[Carrier, Path], None]
"""Gets a carrier when it is first found, and a path under which it can be opened during the call."""


@dataclass
class LibraryFinder:
    """Looks through the machine's processes for carriers, new processes first."""

    wanted: Wanted
    proc: Path = Path("/proc")
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.monotonic
    counts: Counts = field(default_factory=Counts)
    carriers: dict[Place, Carrier] = field(default_factory=dict)
    _barren: set[Place] = field(default_factory=set)
    _used: dict[int, frozenset[Place]] = field(default_factory=dict)
    _looks: dict[int, _Looks] = field(default_factory=dict)

    def search(self, visit: Visit, within_s: float | None = None) -> list[Carrier]:
        """Look on for a while; return the carriers that no process uses any more, which are then forgotten."""
        began_s = self.clock()
        deadline_s = began_s + (self.limits.search_s if within_s is None else within_s)
        alive = {int(entry.name) for entry in os.scandir(self.proc) if entry.name.isdigit()}
        for pid in [pid for pid in self._looks if pid not in alive]:
            del self._looks[pid]
            self._used.pop(pid, None)
        for pid in self._due(alive, began_s):
            if self.clock() >= deadline_s or not self._look(pid, visit, deadline_s):
                break
            now_s = self.clock()
            self._looks.setdefault(pid, _Looks(now_s, now_s)).last_s = now_s
        return self._forget_unused(alive)

    def _due(self, alive: set[int], now_s: float) -> list[int]:
        """Return the processes whose turn it is: those not looked at yet first, then who has waited longest."""
        new = [pid for pid in alive if pid not in self._looks]
        old = [
            (looks.last_s, pid)
            for pid, looks in self._looks.items()
            if looks.due(now_s, self.limits.again_s)
        ]
        return [*new, *(pid for _, pid in sorted(old))]

    def _look(self, pid: int, visit: Visit, deadline_s: float) -> bool:
        """Examine what one process has mapped; False when there was no time to see all of it."""
        used = set()
        for mapping in self._mappings(pid):
            used.add(mapping.place)
            if mapping.place in self.carriers or mapping.place in self._barren:
                continue
            if self.clock() >= deadline_s:
                self._used[pid] = self._used.get(pid, frozenset()) | used
                return False
            self._examine(pid, mapping, visit)
        self._used[pid] = frozenset(used)
        return True

    def _mappings(self, pid: int) -> Iterator[_Mapping]:
        """Yield the executable, and all files with code where one of them has a wanted name."""
        folder = f"{self.proc}/{pid}"  # no Path: it would intern the name of every process
        executable_link = f"{folder}/exe"
        try:
            status = os.stat(executable_link)  # noqa: PTH116  of the very file: the link does not go by its path
            maps = self._read_maps(folder)
        except (FileNotFoundError, ProcessLookupError):  # a kernel thread, or gone
            return
        except PermissionError:
            if pid not in self._used:  # counted once
                self.counts.unreadable += 1
            return
        executable = (status.st_dev, status.st_ino)
        yield _Mapping(executable, _link(executable_link), (executable_link,))
        if not any(name.encode() in maps for name in self.wanted.libraries):
            return
        seen = {executable}
        for start, end, major, minor, inode, path in _MAPPED.findall(maps):
            place = (os.makedev(int(major, 16), int(minor, 16)), int(inode))
            if place not in seen:
                seen.add(place)
                name = os.fsdecode(path.removesuffix(_DELETED))
                by_address = f"{folder}/map_files/{start.decode()}-{end.decode()}"
                yield _Mapping(place, name, (f"{folder}/root{name}", by_address))

    def _read_maps(self, folder: str) -> bytes:
        with open(f"{folder}/maps", "rb", buffering=0) as file:  # noqa: PTH123  no Path, as above
            pieces, size = [], 0
            while size < self.limits.maps_bytes and (piece := file.read(1 << 18)):
                pieces.append(piece)
                size += len(piece)
        return b"".join(pieces)

    def _examine(self, pid: int, mapping: _Mapping, visit: Visit) -> None:
        for way in mapping.ways:
            try:
                descriptor = os.open(way, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                if _is_the_one(os.fstat(descriptor), mapping.place):
                    self._examine_open(pid, mapping, _OWN_DESCRIPTORS / str(descriptor), visit)
                    return
            finally:
                os.close(descriptor)
        self.counts.unreadable += 1
        self._barren.add(mapping.place)

    def _examine_open(self, pid: int, mapping: _Mapping, file: Path, visit: Visit) -> None:
        try:
            found = self._carried(file)
        except (
            NotSupportedError,
            OSError,
            ValueError,
        ):  # mapped, but no ELF file; empty; unreadable
            self.counts.not_elf += 1
            found = ()
        if not found:
            self._barren.add(mapping.place)
            return
        if len(self.carriers) >= self.limits.files:
            self.counts.too_many += 1
            return
        identity = FileId(*mapping.place, build_id(file))
        carrier = Carrier(identity, mapping.path, pid, found)
        self.carriers[mapping.place] = carrier
        visit(carrier, file)

    def _carried(self, file: Path) -> tuple[Symbol, ...]:
        if not mentions(file, self.wanted.marks):
            return ()
        return tuple(symbol for symbol in functions(file) if symbol.name in self.wanted.functions)

    def _forget_unused(self, alive: set[int]) -> list[Carrier]:
        used = frozenset[Place]().union(*self._used.values())
        self._barren &= used
        gone = [self.carriers.pop(place) for place in self.carriers.keys() - used]
        for pid in self._used.keys() - alive:
            del self._used[pid]
        return gone


def _is_the_one(status: os.stat_result, place: Place) -> bool:
    """Tell whether an opened file is what is mapped; overlays and btrfs show files under a device of their own."""
    device, inode = place
    if not stat.S_ISREG(status.st_mode) or status.st_ino != inode:
        return False
    return status.st_dev == device or os.major(status.st_dev) == 0


def _link(path: str) -> str:
    try:
        return os.readlink(path).removesuffix(_DELETED.decode())  # noqa: PTH115  no Path, as above
    except OSError:
        return ""
