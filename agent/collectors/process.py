"""CPU, memory, faults, files, switches and disk I/O of the processes that matter, and of no others.

Names of OpenTelemetry's process metrics.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from agent.collectors import procfs
from agent.collectors.base import CollectorContext, NoData
from agent.host import process_stat, processes
from agent.host.containers import identify
from agent.host.files import KernelFiles
from agent.host.hierarchies import Hierarchies, discover
from agent.host.process_stat import ProcessStat, Switches
from agent.host.rarely import Rarely
from agent.host.watched import MAX_PROCESSES, NamedProcesses, WatchedProcesses
from agent.telemetry.keys import (
    CGROUP,
    CONTAINER_ID,
    CPU_MODE,
    DISK_OPERATION,
    EXECUTABLE,
    FAULT_TYPE,
    PIPE,
    PROCESS_PID,
    REASON,
    SWITCH_TYPE,
)
from agent.telemetry.model import Attributes, Sample

_SLOW_EVERY = 10
_SWITCHES = "process.context_switches"
_FILES = "process.unix.file_descriptor.count"
_DROPPED = "tailcause.pipe.dropped"


@dataclass
class _Known:
    """A process that is watched; slow samples stay until their turn comes again."""

    attributes: Attributes
    start_ticks: int
    start_unix_ns: int
    slow_due: Rarely
    seen_unix_ns: int
    switches: Switches = field(default_factory=Switches)
    slow: list[Sample] | None = None


class ProcessCollector:
    """Reads processes that send spans, that use a GPU or that were named: at most 200 of them.

    Others are not looked at, however many there are. The descriptor that stays open on a process cannot turn into
    another process of the same pid: once it has ended, reads fail.
    """

    METRICS: ClassVar[tuple[str, ...]] = (
        "process.cpu.time",
        "process.memory.usage",
        "process.memory.virtual",
        "process.thread.count",
        _FILES,
        "process.paging.faults",
        _SWITCHES,
        "process.disk.io",
        _DROPPED,
    )

    def __init__(self, context: CollectorContext) -> None:
        self._context = context
        self._procfs = context.paths.procfs
        names = NamedProcesses(self._procfs, frozenset(context.selection.process_names))
        self._watched = WatchedProcesses((context.serving_pids, context.gpu_pids, names))
        self._files = KernelFiles(MAX_PROCESSES)
        self._hierarchies: Hierarchies | None = None
        self._boot_unix_ns = 0
        self._known: dict[int, _Known] = {}
        self._lost: Counter[str] = Counter()
        self._start_unix_ns = context.now_unix_ns()

    def collect(self) -> list[Sample]:
        """Return the numbers of each process; raises `NoData` where none is watched or alive."""
        if self._hierarchies is None:
            self._boot_unix_ns = procfs.boot_unix_ns(self._context.paths)
            self._hierarchies = self._discover()
        pids = self._watched()
        for gone in self._known.keys() - set(pids):
            self._forget(gone)
        trees, now_s = self._hierarchies, time.monotonic()
        samples = [sample for pid in pids for sample in self._of(pid, trees, now_s)]
        if not samples:
            raise NoData(
                "no process sends spans, uses a GPU or has a name in process_names",
                remedy="send spans through the agent, or give --process-names",
            )
        return [*samples, *self._losses()]

    def _discover(self) -> Hierarchies:
        try:
            return discover(self._context.paths)
        except OSError:  # processes without cgroups are better than none
            return Hierarchies(())

    def _of(self, pid: int, hierarchies: Hierarchies, now_s: float) -> Iterator[Sample]:
        try:
            stat = ProcessStat.parse(self._files.read(f"{self._procfs}/{pid}/stat"))
            known = self._known.get(pid)
            if known is None or known.start_ticks != stat.start_ticks:
                known = self._known[pid] = self._new(pid, stat, hierarchies)
            if known.slow_due.due(now_s) or known.slow is None:
                known.slow = self._slow(self._procfs / str(pid), known)
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            self._forget(pid)
            return
        except (OSError, ValueError, KeyError, IndexError):
            self._lost["unreadable"] += 1
            return
        yield from self._fast(stat, known)
        yield from known.slow

    def _new(self, pid: int, stat: ProcessStat, hierarchies: Hierarchies) -> _Known:
        keys: dict[str, str | int] = {
            PROCESS_PID: pid,
            EXECUTABLE: process_stat.executable(self._procfs / str(pid)),
        }
        if hierarchies.trees:
            keys[CGROUP] = processes.place(self._context.paths, hierarchies, pid).cgroup
            if container_id := identify(str(keys[CGROUP])).container_id:
                keys[CONTAINER_ID] = container_id
        age_ns = stat.start_ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        start = self._boot_unix_ns + age_ns if self._boot_unix_ns else 0
        now = self._context.now_unix_ns()
        return _Known(
            keys, stat.start_ticks, min(start, now), Rarely(_SLOW_EVERY, pid % _SLOW_EVERY), now
        )

    def _fast(self, stat: ProcessStat, known: _Known) -> Iterator[Sample]:
        now, who, start = self._context.now_unix_ns(), known.attributes, known.start_unix_ns
        for mode, seconds in (("user", stat.user_s), ("system", stat.system_s)):
            yield Sample("process.cpu.time", seconds, now, {**who, CPU_MODE: mode}, start)
        for kind, count in (("minor", stat.minor_faults), ("major", stat.major_faults)):
            yield Sample("process.paging.faults", count, now, {**who, FAULT_TYPE: kind}, start)
        yield Sample("process.memory.usage", stat.resident_bytes, now, who)
        yield Sample("process.memory.virtual", stat.virtual_bytes, now, who)
        yield Sample("process.thread.count", stat.threads, now, who)

    def _slow(self, directory: Path, known: _Known) -> list[Sample]:
        """Return what can be had of what is slow to read."""
        samples: list[Sample] = []
        for read in (self._switches, self._open_files, self._disk):
            try:
                samples += read(directory, known)
            except PermissionError:
                self._lost["no_permission"] += 1
            except (
                FileNotFoundError,
                ProcessLookupError,
            ):  # it has ended, or the kernel lacks this file
                continue
        return samples

    def _switches(self, directory: Path, known: _Known) -> Iterator[Sample]:
        if not known.switches.read(directory):
            self._lost["too_many_threads"] += 1
            return
        now, since = self._context.now_unix_ns(), known.seen_unix_ns
        both = (
            ("voluntary", known.switches.voluntary),
            ("involuntary", known.switches.involuntary),
        )
        for kind, count in both:
            yield Sample(_SWITCHES, count, now, {**known.attributes, SWITCH_TYPE: kind}, since)

    def _open_files(self, directory: Path, known: _Known) -> Iterator[Sample]:
        count = process_stat.open_files(directory)
        yield Sample(_FILES, count, self._context.now_unix_ns(), known.attributes)

    def _disk(self, directory: Path, known: _Known) -> Iterator[Sample]:
        now = self._context.now_unix_ns()
        for direction, size in process_stat.disk_bytes(directory).items():
            keys = {**known.attributes, DISK_OPERATION: direction}
            yield Sample("process.disk.io", size, now, keys, known.start_unix_ns)

    def _forget(self, pid: int) -> None:
        self._files.forget(f"{self._procfs}/{pid}/stat")
        self._known.pop(pid, None)

    def _losses(self) -> Iterator[Sample]:
        now = self._context.now_unix_ns()
        for reason, count in {**self._lost, "too_many": self._watched.overflow}.items():
            if count:
                keys = {PIPE: "process", REASON: reason}
                yield Sample(_DROPPED, count, now, keys, self._start_unix_ns)
