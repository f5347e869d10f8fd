"""Xid errors: how grave each is, and one count of them from two sources.

Source of the severities: NVIDIA's "Xid Catalog", immediate actions (RESTART_APP, RESET_GPU, RESTART_BM, IGNORE).
"""

import threading
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass

SOURCES = ("nvml", "kernel")
PAIRING_S = 60.0
"""Within this time a report of one source is the same event as a report of the other."""
_MAX_UNPAIRED = 64
_BURST_S = 0.01
"""The driver writes a line for each unit that took part in one exception; those come together."""
_MAX_SERIES = 256

_SEVERITY = {
    "notice": (63, 92, 154),
    "application": (8, 11, 13, 31, 32, 43, 45, 69, 94),
    "fatal": (46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143),
}
_BY_CODE = {code: severity for severity, codes in _SEVERITY.items() for code in codes}


def severity(code: int) -> str:
    """Return `notice` (nothing to do yet), `application` (restart it), `fatal` (reset, drain), or `unknown`."""
    return _BY_CODE.get(code, "unknown")


@dataclass(frozen=True)
class Xid:
    """One report of one source, at a time of the monotonic clock."""

    pci: str
    code: int
    source: str
    at_s: float


class XidBook:
    """Counts each event once, though both sources tell of it; a second, identical one counts again.

    A report is taken for the other source's earlier one of the same GPU and number, if that has no partner yet; so the
    count is the larger of the two sources', whichever of them misses one. Called from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, int]] = Counter()
        self._last: dict[str, int] = {}
        self._unpaired: dict[tuple[str, int, str], deque[float]] = {}
        self._line_s: dict[tuple[str, int], float] = {}
        self.overflow = 0

    def add(self, xid: Xid) -> bool:
        """Take up a report; tell whether it is a new event."""
        with self._lock:
            if xid.source == "kernel" and self._is_of_burst(xid):
                return False
            if self._pair(xid):
                return False
            key = (xid.pci, xid.code)
            if key not in self._counts and len(self._counts) >= _MAX_SERIES:
                self.overflow += 1
                return False
            self._counts[key] += 1
            self._last[xid.pci] = xid.code
            mine = self._unpaired.setdefault((*key, xid.source), deque(maxlen=_MAX_UNPAIRED))
            mine.append(xid.at_s)
            return True

    def _is_of_burst(self, xid: Xid) -> bool:
        key = (xid.pci, xid.code)
        before_s = self._line_s.get(key, float("-inf"))
        self._line_s[key] = xid.at_s
        return 0 <= xid.at_s - before_s < _BURST_S

    def _pair(self, xid: Xid) -> bool:
        other = next(source for source in SOURCES if source != xid.source)
        waiting = self._unpaired.get((xid.pci, xid.code, other))
        while waiting:
            if abs(xid.at_s - waiting.popleft()) <= PAIRING_S:
                return True
        return False

    def counts(self) -> Iterator[tuple[str, int, int]]:
        """Yield PCI address, number and count of every kind of event that there was."""
        with self._lock:
            found = list(self._counts.items())
        for (pci, code), count in found:
            yield pci, code, count

    def last(self) -> dict[str, int]:
        """Return the number of each GPU's last event."""
        with self._lock:
            return dict(self._last)
