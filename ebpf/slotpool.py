"""Gives the slots of cgroups that are gone to new cgroups.

A slot is cleared and kept aside for one round before it is handed out again: a thread that was on its way out of the
cgroup may still count under it.
"""

import struct
from collections.abc import Callable, Mapping, Sequence

from ebpf.cgroupids import CgroupPaths
from ebpf.layout import FIRST_FREE_SLOT, MAX_CGROUPS
from ebpf.maps import Map

GRACE_S = 60.0
"""How long the last numbers of a cgroup that is gone stay readable."""
ROUND_S = 10.0

Forget = Callable[[frozenset[int]], None]


class SlotPool:
    """Names slots and takes back those whose cgroup is gone; `forget` clears what probes counted under them."""

    def __init__(self, paths: CgroupPaths, forget: Forget) -> None:
        self._paths, self._forget = paths, forget
        self._ids: dict[int, int] = {}
        self._gone_since_s: dict[int, float] = {}
        self._fresh: frozenset[int] = frozenset()
        self._aside: frozenset[int] = frozenset()
        self._looked_s = float("-inf")
        self.recycled = 0

    def name_new(self, slots: Map, names: dict[int, str]) -> None:
        """Name the slots that have no name yet; takes nothing back, so that a probe may ask while it is read."""
        ids = _ids(slots)
        self._name(ids, [slot for slot in ids if slot not in names], names)

    def update(self, slots: Map, free: Map, names: dict[int, str], now_s: float) -> None:
        """Bring `names` up to date; look for cgroups that are gone every ten seconds or when any is new."""
        ids = _ids(slots)
        new = [slot for slot in ids if self._ids.get(slot) != ids[slot]]
        if not new and now_s - self._looked_s < ROUND_S:
            return
        self._name(ids, new, names)
        self._ids = ids
        again = {names[slot] for slot in new}
        expired = self._expired({s: i for s, i in ids.items() if s not in new}, names, again, now_s)
        for slot in expired:
            slots.delete(struct.pack("=Q", ids[slot]))
            self._paths.forget(ids[slot])
            self._gone_since_s.pop(slot, None)
            del names[slot], self._ids[slot]
        if expired:
            self._forget(frozenset(expired))
        self._hand_out(free, frozenset(expired), now_s)

    def _name(self, ids: Mapping[int, int], new: Sequence[int], names: dict[int, str]) -> None:
        if new:
            self._paths.walk()
        for slot in new:
            names[slot] = self._paths.path(ids[slot]) or f"(gone:{ids[slot]})"

    def _expired(
        self, ids: Mapping[int, int], names: Mapping[int, str], again: set[str], now_s: float
    ) -> list[int]:
        """Return the slots to take back: gone for long enough, or made again under the same path."""
        expired = []
        for slot, cgroup_id in ids.items():
            if not FIRST_FREE_SLOT <= slot < MAX_CGROUPS:
                continue
            if self._paths.exists(cgroup_id):
                self._gone_since_s.pop(slot, None)
                continue
            since_s = self._gone_since_s.setdefault(slot, now_s)
            if now_s - since_s >= GRACE_S or names[slot] in again:
                expired.append(slot)
        return expired

    def _hand_out(self, free: Map, expired: frozenset[int], now_s: float) -> None:
        """Hand out what has been aside for a whole round."""
        self._fresh |= expired
        if now_s - self._looked_s < ROUND_S:
            return
        self._looked_s = now_s
        if self._aside:
            self._forget(self._aside)
        for slot in self._aside:
            free.update(None, struct.pack("=I", slot))
        self.recycled += len(self._aside)
        self._aside, self._fresh = self._fresh, frozenset()


def _ids(slots: Map) -> dict[int, int]:
    """Return slot → id of the cgroup."""
    return {
        struct.unpack("=I", value)[0]: struct.unpack("=Q", key)[0] for key, value in slots.items()
    }
