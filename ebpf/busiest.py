"""Which series of a metric are exported when there are more than the bound: the busiest ones."""

from collections.abc import Hashable, Mapping
from itertools import repeat
from operator import sub
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_INCUMBENT = 2.0


class Busiest(Generic[_Key]):
    """Picks keys by how much their counters grew; a key that is in counts double, so that few come and go."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._before: dict[_Key, float] = {}
        self._picked: frozenset[_Key] = frozenset()
        self.overflow = 0
        """How many series were left out so far, added up over the collections."""

    def pick(self, counters: Mapping[_Key, float]) -> set[_Key]:
        """Return at most `limit` keys of cumulative counters."""
        if len(counters) <= self._limit:
            chosen = set(counters)
        else:
            chosen = self._first(self._growth(counters), counters)
            self.overflow += len(counters) - len(chosen)
        self._before = dict(counters.items())
        self._picked = frozenset(chosen)
        return chosen

    def _growth(self, counters: Mapping[_Key, float]) -> dict[_Key, float]:
        before = map(self._before.get, counters, repeat(0.0))
        growth = dict(zip(counters, map(sub, counters.values(), before), strict=True))
        for key in self._picked & growth.keys():
            growth[key] *= _INCUMBENT
        return growth

    def _first(self, growth: Mapping[_Key, float], counters: Mapping[_Key, float]) -> set[_Key]:
        """Return those that grew most; sorting the bare numbers is several times as fast as sorting by a function."""
        least = sorted(growth.values())[-self._limit]
        chosen = {key for key, grown in growth.items() if grown > least}
        equal = (key for key, grown in growth.items() if grown == least)
        ranked = sorted(equal, key=lambda key: (-counters[key], str(key)))
        return chosen.union(ranked[: self._limit - len(chosen)])
