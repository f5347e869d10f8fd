"""Which processes may have done the work of a request that one of them reports."""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from agent.host import processes
from agent.host.hierarchies import Hierarchies
from agent.host.paths import HostPaths

_log = logging.getLogger(__name__)

MAX_PROCESSES = 64
_CACHED = 1024
_SHARED_SCOPES = ("session-", "user-", "user@", "app-", "init.scope", "vte-")


@dataclass(frozen=True)
class _Known:
    read_s: float
    pids: frozenset[int]


class ServingProcesses:
    """Which processes may do the work of a span: those of the sender's cgroup, and those configured by name.

    The root cgroup and a login session's hold processes that have nothing to do with each other; there, those started
    together count: the sender's process group from its topmost member down. At most 64 count in either case.
    """

    def __init__(
        self,
        paths: HostPaths,
        hierarchies: Hierarchies,
        names: Collection[str] = (),
        *,
        reread_s: float = 5.0,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths = paths
        self._hierarchies = hierarchies
        self._names = frozenset(names)
        self._reread_s = reread_s
        self._monotonic_s = monotonic_s
        self._known: dict[int, _Known] = {}
        self._configured = _Known(float("-inf"), frozenset())

    def __call__(self, pid: int) -> frozenset[int]:
        """Return the processes, `pid` among them, as of at most five seconds ago."""
        now_s = self._monotonic_s()
        known = self._known.get(pid)
        if known is None or now_s - known.read_s > self._reread_s:
            pids = self._read(pid)
            if not pids and known is not None:  # its last spans may come after its end
                pids = known.pids
            known = _Known(now_s, pids | {pid})
            self._remember(pid, known)
        return known.pids | self._by_name(now_s)

    def _remember(self, pid: int, known: _Known) -> None:
        self._known.pop(pid, None)
        self._known[pid] = known
        if len(self._known) > _CACHED:
            del self._known[next(iter(self._known))]

    def _read(self, pid: int) -> frozenset[int]:
        try:
            cgroup = processes.place(self._paths, self._hierarchies, pid).cgroup
            if _belongs_together(cgroup):
                members = self._members(cgroup, pid)
                if 0 < len(members) <= MAX_PROCESSES:
                    return members
            return _family(self._paths.procfs, pid)
        except OSError as exc:
            _log.debug("serving processes not read pid=%s reason=%s", pid, exc)
            return frozenset()

    def _members(self, cgroup: str, pid: int) -> frozenset[int]:
        for tree in self._hierarchies.trees:
            path = tree.mount / cgroup.lstrip("/") / "cgroup.procs"
            try:
                members = frozenset(map(int, path.read_text().split()))
            except OSError:  # not in this tree
                continue
            if pid in members:
                return members
        return frozenset()

    def _by_name(self, now_s: float) -> frozenset[int]:
        if not self._names:
            return frozenset()
        if now_s - self._configured.read_s > self._reread_s:
            found = [pid for pid in _all(self._paths.procfs) if self._has_name(pid)]
            self._configured = _Known(now_s, frozenset(found[:MAX_PROCESSES]))
        return self._configured.pids

    def _has_name(self, pid: int) -> bool:
        try:
            comm = (self._paths.procfs / str(pid) / "comm").read_text().rstrip("\n")
        except OSError:  # it has just ended
            return False
        return comm in self._names


def _belongs_together(cgroup: str) -> bool:
    return cgroup != "/" and not cgroup.rsplit("/", 1)[-1].startswith(_SHARED_SCOPES)


def _all(procfs: Path) -> list[int]:
    return [int(entry.name) for entry in procfs.iterdir() if entry.name.isdigit()]


def _family(procfs: Path, pid: int) -> frozenset[int]:
    """Return the topmost ancestor in the same process group, and its descendants."""
    top, (parent, group) = pid, _parent_and_group(procfs, pid)
    while parent > 1:
        above, other_group = _parent_and_group(procfs, parent)
        if other_group != group:
            break
        top, parent = parent, above
    found: set[int] = set()
    pending = [top]
    while pending and len(found) < MAX_PROCESSES:
        one = pending.pop()
        found.add(one)
        pending += _children(procfs, one)
    return frozenset(found | {pid})


def _parent_and_group(procfs: Path, pid: int) -> tuple[int, int]:
    fields = (procfs / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), int(fields[2])


def _children(procfs: Path, pid: int) -> list[int]:
    """Source: proc_pid_task(5), `children`; needs CONFIG_PROC_CHILDREN, which distributions set."""
    found: list[int] = []
    for listed in (procfs / str(pid) / "task").glob("*/children"):
        try:
            found += map(int, listed.read_text().split())
        except OSError:  # the thread has just ended
            continue
    return found
