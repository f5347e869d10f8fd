"""Finds the files that carry a library's functions, among those that running processes have mapped.

By name (libcudart.so.12), and where a runtime was linked statically: in executables, and in any shared object of a
process that maps one by name. Files are opened through the process (/proc/PID/root, /proc/PID/exe), so that those of
containers are found and a path is never looked up in our own mount namespace; what is opened must be what is mapped.
A process may map its libraries late, so the search goes on, a bounded piece at a time.
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
    ways: tuple[Path, ...]


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
    _looked_s: dict[int, float] = field(default_factory=dict)

    def search(self, visit: Visit, within_s: float | None = None) -> list[Carrier]:
        """Look on for a while; return the carriers that no process uses any more, which are then forgotten."""
        deadline_s = self.clock() + (self.limits.search_s if within_s is None else within_s)
        alive = {int(entry.name) for entry in os.scandir(self.proc) if entry.name.isdigit()}
        for pid in [pid for pid in self._looked_s if pid not in alive]:
            del self._looked_s[pid]
            self._used.pop(pid, None)
        for pid in sorted(alive, key=lambda pid: self._looked_s.get(pid, float("-inf"))):
            if self.clock() >= deadline_s or not self._look(pid, visit, deadline_s):
                break
            self._looked_s[pid] = self.clock()
        return self._forget_unused(alive)

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
        folder = self.proc / str(pid)
        try:
            status = (folder / "exe").stat()  # of the very file: the link does not go by its path
            maps = self._read_maps(folder)
        except (FileNotFoundError, ProcessLookupError):  # a kernel thread, or gone
            return
        except PermissionError:
            if pid not in self._used:  # counted once
                self.counts.unreadable += 1
            return
        executable = (status.st_dev, status.st_ino)
        yield _Mapping(executable, _link(folder / "exe"), (folder / "exe",))
        if not any(name.encode() in maps for name in self.wanted.libraries):
            return
        seen = {executable}
        for start, end, major, minor, inode, path in _MAPPED.findall(maps):
            place = (os.makedev(int(major, 16), int(minor, 16)), int(inode))
            if place not in seen:
                seen.add(place)
                name = os.fsdecode(path.removesuffix(_DELETED))
                by_address = folder / "map_files" / f"{start.decode()}-{end.decode()}"
                yield _Mapping(place, name, (folder / "root" / name.lstrip("/"), by_address))

    def _read_maps(self, folder: Path) -> bytes:
        with (folder / "maps").open("rb", buffering=0) as file:
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


def _link(path: Path) -> str:
    try:
        return str(path.readlink()).removesuffix(_DELETED.decode())
    except OSError:
        return ""
