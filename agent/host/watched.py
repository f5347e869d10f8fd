"""Which processes are looked at one by one: those that send spans, that use a GPU, or that bear a name."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from agent.host.files import read_text
from agent.host.rarely import Rarely

MAX_PROCESSES = 200
_SCAN_EVERY, _AFRESH_EVERY = 5, 60  # rounds
_NEW_A_SCAN = 1000


@dataclass
class NamedProcesses:
    """Finds processes by the name that the kernel knows them by, which is cut at 15 characters.

    However many processes come and go, a scan looks at no more than a thousand that it has not seen twice: at the first
    sight a process may bear its parent's name still. A pid may be used again, so all are new once a minute.
    """

    procfs: Path
    names: frozenset[str]
    _once: set[int] = field(default_factory=set)
    _twice: set[int] = field(default_factory=set)
    _found: list[int] = field(default_factory=list)
    _scan_due: Rarely = field(default_factory=lambda: Rarely(_SCAN_EVERY))
    _afresh_due: Rarely = field(default_factory=lambda: Rarely(_AFRESH_EVERY))

    def __call__(self) -> list[int]:
        """Return the processes of these names, as of at most five rounds or seconds ago."""
        now_s = time.monotonic()
        afresh = self._afresh_due.due(now_s)
        if self.names and (self._scan_due.due(now_s) or afresh):
            if afresh:
                self._once.clear()
                self._twice.clear()
                self._found.clear()
            self._scan()
        return self._found

    def _scan(self) -> None:
        try:
            present = {int(entry.name) for entry in self.procfs.iterdir() if entry.name.isdigit()}
        except OSError:
            present = set()
        self._once &= present
        self._twice &= present
        self._found = [pid for pid in self._found if pid in present]
        for pid in sorted(present - self._twice)[:_NEW_A_SCAN]:
            (self._twice if pid in self._once else self._once).add(pid)
            if pid not in self._found and self._name(pid) in self.names:
                self._found.append(pid)

    def _name(self, pid: int) -> str:
        try:
            return read_text(self.procfs / str(pid) / "comm").rstrip("\n")
        except OSError:  # it has just ended
            return ""


@dataclass
class WatchedProcesses:
    """The processes of some sources, the first sources first; past the bound they are counted."""

    sources: tuple[Callable[[], Iterable[int]], ...]
    overflow: int = 0

    def __call__(self) -> list[int]:
        """Return at most 200 processes."""
        found = list(dict.fromkeys(pid for source in self.sources for pid in source()))
        self.overflow += max(0, len(found) - MAX_PROCESSES)
        return found[:MAX_PROCESSES]
