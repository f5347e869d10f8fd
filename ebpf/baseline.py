"""Numbers of slots that were given to another cgroup: the kernel's counters are never reset, readers subtract."""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key")
Counters = tuple[int, ...]


class Baseline(Generic[Key]):
    """What was counted before slots changed hands; `slots_of` tells which slots a key names."""

    def __init__(self, slots_of: Callable[[Key], Iterable[int]]) -> None:
        self._slots_of = slots_of
        self._before: dict[Key, Counters] = {}

    def forget(self, counted: Mapping[Key, Counters], slots: frozenset[int]) -> None:
        """Take what is counted now under these slots as nothing."""
        for key, counters in counted.items():
            if not slots.isdisjoint(self._slots_of(key)):
                self._before[key] = counters

    def clear(self) -> None:
        """Start over, with fresh maps."""
        self._before.clear()

    def since(self, counted: Mapping[Key, Counters]) -> dict[Key, Counters]:
        """Return what was counted since the slots changed hands, without keys that have nothing."""
        if not self._before:
            return dict(counted)
        grown: dict[Key, Counters] = {}
        for key, counters in counted.items():
            before = self._before.get(key)
            if before is None:
                grown[key] = counters
                continue
            left = tuple(now - then for now, then in zip(counters, before, strict=True))
            if any(left):
                grown[key] = left
        return grown
