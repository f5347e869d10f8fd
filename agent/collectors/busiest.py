"""Which series of a metric are exported when there are more than the bound: the busiest ones."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_INCUMBENT = 2.0


class Busiest:
    """Picks keys by how much their counters grew; a key that is in counts double, so that few come and go."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._before: dict[Hashable, float] = {}
        self._picked: frozenset[Hashable] = frozenset()
        self.overflow = 0
        """How many series were left out so far, added up over the collections."""

    def pick(self, counters: Mapping[_Key, float]) -> set[_Key]:
        """Return at most `limit` keys of cumulative counters."""
        if len(counters) <= self._limit:
            chosen = set(counters)
        else:
            growth = {
                key: (value - self._before.get(key, 0.0))
                * (_INCUMBENT if key in self._picked else 1.0)
                for key, value in counters.items()
            }
            ranked = sorted(counters, key=lambda key: (-growth[key], -counters[key], str(key)))
            chosen = set(ranked[: self._limit])
            self.overflow += len(counters) - len(chosen)
        self._before = dict(counters.items())
        self._picked = frozenset(chosen)
        return chosen
