"""Measured children of requests whose engine has not been seen yet, and where their waiting for it began.

Most parents of measured spans never have an engine, and there may be many of them. Each process has places of its own:
when all are taken, the oldest parent of the process that has most of them makes room.
"""

from array import array
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from agent.telemetry.steps import Stretch

MAX_CHILDREN = 16
"""Of one request."""


@dataclass(slots=True)
class Known:
    """What is known of a request before its engine is."""

    seen_s: float
    first_ns: int = 0
    """Start of its first phase; 0: none was seen."""
    children: list[Stretch] = field(default_factory=list)

    def add(self, child: Stretch) -> bool:
        """Add a child; False where there are too many."""
        if len(self.children) >= MAX_CHILDREN:
            return False
        start_ns, end_ns, parts = child
        self.children.append((start_ns, end_ns, array("d", parts)))
        return True

    def begin(self, start_ns: int) -> None:
        """Note the start of a phase."""
        self.first_ns = min(self.first_ns or start_ns, start_ns)


class Children:
    """Requests without an engine, by span id; each takes a place, and each of its children another."""

    def __init__(self, places: int, hold_s: float) -> None:
        self._places = places
        self._hold_s = hold_s
        self._by_owner: dict[Hashable, OrderedDict[bytes, Known]] = {}
        self._owner_of: dict[bytes, Hashable] = {}
        self._taken = 0

    def __len__(self) -> int:
        return self._taken

    def of(self, owner: Hashable, request: bytes, now_s: float) -> Known:
        """Return what is known of a request of a process, anew where nothing is."""
        owner = self._owner_of.setdefault(request, owner)
        mine = self._by_owner.setdefault(owner, OrderedDict())
        known = mine.get(request)
        if known is None:
            known = mine[request] = Known(now_s)
            self._taken += 1
        known.seen_s = now_s
        mine.move_to_end(request)
        return known

    def add(self, owner: Hashable, request: bytes, child: Stretch, now_s: float) -> bool:
        """Add a child to a request of a process; False where there are too many."""
        added = self.of(owner, request, now_s).add(child)
        self._taken += added
        return added

    def take(self, request: bytes) -> Known | None:
        """Return what is known of a request, and forget it."""
        owner = self._owner_of.pop(request, None)
        if owner is None:
            return None
        mine = self._by_owner[owner]
        known = mine.pop(request)
        self._taken -= 1 + len(known.children)
        if not mine:
            del self._by_owner[owner]
        return known

    def expire(self, now_s: float) -> int:
        """Let go of what is old or has no place; return how many children had no place."""
        lost = 0
        while self._taken > self._places:
            fullest = max(self._by_owner.values(), key=len)
            known = self.take(next(iter(fullest)))
            lost += len(known.children) if known is not None else 0
        for mine in list(self._by_owner.values()):
            while mine and (oldest := next(iter(mine.items())))[1].seen_s < now_s - self._hold_s:
                self.take(oldest[0])
        return lost
