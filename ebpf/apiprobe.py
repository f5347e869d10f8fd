"""Times the calls of a library's API in every process that maps it: what the cuda and nccl probes share.

Uprobes sit in other people's processes, so the probe attaches only when it is asked to, looks at each function before it
does, and refuses those where the kernel would single-step: there a call costs some 14 us more.
"""

import logging
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ebpf.errors import EbpfError, NotSupportedError, SwitchedOffError
from ebpf.layout import CALL_KEY, CALL_TIME, SLOTS, stats
from ebpf.libbpf import Object
from ebpf.libraries import Carrier, FileId, LibraryFinder, Limits, Wanted
from ebpf.probe import Kernel
from ebpf.prologue import landing
from ebpf.reading import Histogram, Reading, Readings
from ebpf.uprobes import Point, Uprobes

if TYPE_CHECKING:
    from ebpf.trapcost import TrapCost  # which needs the session, which needs the registry

_log = logging.getLogger(__name__)

_WAITS, _LAUNCH, _STEPPED = 1 << 8, 1 << 9, 1 << 10  # enum tc_call_cookie
_GAP = 0
_TRAPS = ("entry", "stepped", "return")  # enum tc_call_trap
_TWINS = ("", "_ptsz", "_ptds")
"""The same function with a per-thread default stream."""
_FIRST_SEARCH_S = 2.0


@dataclass(frozen=True)
class Api:
    """One function of the library, with its twins."""

    name: str
    kind: str
    waits: bool = False
    """It returns when the GPU has got there: its time is gpu_sync in the ledger."""


@dataclass(frozen=True)
class ApiSet:
    """What a probe times, and under which names it reports."""

    name: str
    apis: tuple[Api, ...]
    libraries: tuple[str, ...]
    marks: tuple[str, ...]
    metric: str
    gap_metric: str = ""
    by_process: bool = False

    def wanted(self) -> Wanted:
        """Return what to look for in files."""
        names = frozenset(api.name + twin for api in self.apis for twin in _TWINS)
        return Wanted(self.libraries, names, self.marks)


@dataclass(frozen=True)
class ApiOptions:
    """How far the probe may go."""

    enabled: bool = False
    allow_slow: bool = False
    """Take functions, too, whose first instruction the kernel must single-step."""
    search_every_s: float = 10.0
    proc: Path = Path("/proc")
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Refusal:
    """A function that was found and not attached to, or attached to at a price."""

    path: str
    function: str
    reason: str
    attached: bool


@dataclass(frozen=True)
class _Attached:
    entry: int
    back: int


class ApiProbe:
    """Uprobes on the entries and returns of an API, in every file that carries it."""

    def __init__(self, api_set: ApiSet, options: ApiOptions | None = None) -> None:
        self.name = api_set.name
        self._set, self._options = api_set, options or ApiOptions()
        self._programs = (f"enter_{self.name}", f"leave_{self.name}")
        self._object: Object | None = None
        self._kernel: Kernel | None = None
        self._uprobes: Uprobes | None = None
        self._finder: LibraryFinder | None = None
        self._attached: dict[FileId, _Attached] = {}
        self._refusals: dict[FileId, list[Refusal]] = {}
        self._searched_s = float("-inf")
        self._lost = 0
        self._alive: set[int] = set()

    @property
    def refusals(self) -> Sequence[Refusal]:
        """Functions that were refused, or taken at a price, with the reason."""
        return [refusal for of_file in self._refusals.values() for refusal in of_file]

    @property
    def carriers(self) -> Sequence[Carrier]:
        """The files in which calls are timed now."""
        found = self._finder.carriers.values() if self._finder else ()
        return [carrier for carrier in found if carrier.identity in self._attached]

    def attach(self, kernel: Kernel) -> None:
        """Load and attach to what is mapped now; what is mapped later is found when the probe is read."""
        if not self._options.enabled:
            raise SwitchedOffError(
                f"the {self.name} probe puts uprobes into other processes: it must be asked for"
            )
        if "threads" not in kernel.shared:
            raise NotSupportedError(
                f"the {self.name} probe needs the sched probe, which is not attached"
            )
        opened = kernel.open(self.name)
        self._object, self._kernel = opened, kernel
        self._uprobes = Uprobes(opened, kernel.release)
        self._finder = LibraryFinder(
            self._set.wanted(), self._options.proc, self._options.limits, self._options.clock
        )
        try:
            self._uprobes.prepare(self._programs)
            opened.load()
            self.search(_FIRST_SEARCH_S)
        except BaseException:
            self.detach()
            raise

    def search(self, within_s: float | None = None) -> None:
        """Look for files mapped since, and let go of those that no process uses any more."""
        if self._finder is None or self._uprobes is None:
            return
        gone = self._finder.search(self._visit, within_s)
        self._let_go([carrier.identity for carrier in gone])
        self._searched_s = self._options.clock()

    def read(self) -> Readings:
        """Return the time in each call by cgroup (and process), and the gaps between launches."""
        if self._object is None or self._kernel is None:
            return Readings()
        if self._options.clock() - self._searched_s >= self._options.search_every_s:
            self.search()
        times = self._object.map("call_times")
        found = dict(times.items())
        series = [
            reading
            for key, value in found.items()
            if (reading := self._reading(self._kernel, key, value))
        ]
        for key in self._of_ended_processes(found):
            times.delete(key)
        raw = self._object.map(".bss").lookup(b"\0" * 4) or b""
        return Readings(
            tuple(series), {**stats(raw), **self._not_attached()}, sum(self._traps().values())
        )

    def imposed_s(self, cost: "TrapCost") -> float:
        """Return the time that the traps have cost the callers so far, without the programs' own."""
        traps = self._traps()
        each_ns = {"entry": cost.push_ns, "stepped": cost.stepped_ns, "return": cost.return_ns}
        return sum(traps[kind] * ns for kind, ns in each_ns.items()) / 1e9

    def forget(self, slots: frozenset[int]) -> None:
        """Clear what was counted under the slots of cgroups that are gone."""
        if self._object is None:
            return
        times = self._object.map("call_times")
        for key in list(times.keys()):
            if CALL_KEY.unpack(key)[0] in slots:
                times.delete(key)

    def programs(self) -> Mapping[str, int]:
        """Return the entry and return programs."""
        if self._object is None:
            return {}
        return {name: self._object.program_fd(name) for name in self._programs}

    def detach(self) -> None:
        """Detach and unload; calls in progress go on and are not counted."""
        if self._uprobes is not None:
            self._let_go(list(self._attached))
            self._uprobes.close()
        if self._object is not None:
            try:
                self._leave_behind(self._object)
            finally:
                self._object.close()
        self._object = self._kernel = self._uprobes = self._finder = None
        self._refusals.clear()

    def _leave_behind(self, opened: Object) -> None:
        """Undo what calls in progress have changed in maps of other probes."""

    def _visit(self, carrier: Carrier, file: Path) -> None:
        """Attach to a file that was just found. The return probes go first: an entry must not stay open."""
        points = self._points(carrier)
        if not points or self._uprobes is None:
            return
        entry, back = self._programs
        try:
            back_link = self._uprobes.attach(back, file, points, on_return=True)
            try:
                entry_link = self._uprobes.attach(entry, file, points)
            except BaseException:
                self._uprobes.close([back_link])
                raise
        except EbpfError as exc:
            self._lost += len(points)
            _log.warning(
                "library not attached probe=%s path=%s reason=%s", self.name, carrier.path, exc
            )
            return
        self._attached[carrier.identity] = _Attached(entry_link, back_link)
        _log.info(
            "library attached probe=%s path=%s functions=%d", self.name, carrier.path, len(points)
        )

    def _points(self, carrier: Carrier) -> list[Point]:
        """Choose the places in a file; names that stand for one place are attached to once."""
        apis = {a.name + twin: i for i, a in enumerate(self._set.apis, 1) for twin in _TWINS}
        release = self._kernel.release if self._kernel else (0, 0)
        points: dict[int, Point] = {}
        refused: list[Refusal] = []
        for symbol in carrier.functions:
            place = landing(symbol.code, release)
            if place.stepped:
                allowed = self._options.allow_slow
                refused.append(Refusal(carrier.path, symbol.name, place.reason, allowed))
                if not allowed:
                    continue
            cookie = self._cookie(apis[symbol.name]) | (_STEPPED if place.stepped else 0)
            points.setdefault(symbol.offset + place.skip, Point(symbol.offset + place.skip, cookie))
        self._refusals[carrier.identity] = refused
        for refusal in refused:
            _log.warning(
                "function is slow to probe probe=%s path=%s function=%s attached=%s reason=%s",
                self.name, refusal.path, refusal.function, refusal.attached, refusal.reason,
            )  # fmt: skip
        return list(points.values())

    def _cookie(self, index: int) -> int:
        api = self._set.apis[index - 1]
        launch = _LAUNCH if api.kind == "launch" and self._set.gap_metric else 0
        return index | (_WAITS if api.waits else 0) | launch

    def _let_go(self, files: Sequence[FileId]) -> None:
        """Detach from files: first all entries, then all returns, each lot at once."""
        links = [self._attached.pop(file) for file in files if file in self._attached]
        for file in files:
            self._refusals.pop(file, None)
        if self._uprobes is not None and links:
            self._uprobes.close([link.entry for link in links])
            self._uprobes.close([link.back for link in links])

    def _reading(self, kernel: Kernel, key: bytes, value: bytes) -> Reading | None:
        slot, tgid, index, _ = CALL_KEY.unpack(key)
        labels = {"cgroup": kernel.cgroup(slot)}
        if self._set.by_process:
            labels["pid"] = str(tgid)
        fields = [sum(column) for column in zip(*CALL_TIME.iterate(value), strict=True)]
        histogram = Histogram(tuple(fields[:SLOTS]), fields[SLOTS] / 1e9)
        if index == _GAP:
            return (
                Reading(self._set.gap_metric, labels, histogram) if self._set.gap_metric else None
            )
        api = self._set.apis[index - 1]
        return Reading(self._set.metric, {**labels, "api": api.name, "kind": api.kind}, histogram)

    def _of_ended_processes(self, keys: Iterable[bytes]) -> list[bytes]:
        """Return the series that have been read for the last time: of processes that were seen and are gone."""
        if not self._set.by_process:
            return []
        by_process = {key: int(CALL_KEY.unpack(key)[1]) for key in keys}
        alive = {p for p in set(by_process.values()) if (self._options.proc / str(p)).exists()}
        ended, self._alive = self._alive - alive, alive
        return [key for key, process in by_process.items() if process in ended]

    def _traps(self) -> Mapping[str, int]:
        if self._object is None:
            return dict.fromkeys(_TRAPS, 0)
        counts = self._object.map("traps")
        raw = counts.read_array(len(_TRAPS))
        per_kind = counts.value_bytes // 8
        numbers = struct.unpack(f"={len(raw) // 8}Q", raw)
        return {
            kind: sum(numbers[i * per_kind : (i + 1) * per_kind]) for i, kind in enumerate(_TRAPS)
        }

    def _not_attached(self) -> Mapping[str, int]:
        counts = self._finder.counts if self._finder else None
        return {
            "functions_refused": sum(not refusal.attached for refusal in self.refusals),
            "functions_failed": self._lost,
            "processes_unreadable": counts.unreadable if counts else 0,
            "libraries_full": counts.too_many if counts else 0,
        }
