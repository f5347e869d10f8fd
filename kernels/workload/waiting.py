"""The queue of requests that wait for their prefill, in the order in which they get it."""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping

from kernels.workload.generation import Generation
from kernels.workload.settings import PrefillOrder

Rank = tuple[int, ...]

ORDERS: Mapping[PrefillOrder, Callable[[Generation], Rank]] = {
    PrefillOrder.ARRIVAL: lambda one: (one.priority, one.number),
    PrefillOrder.SHORTEST: lambda one: (one.priority, *_by_length(one), one.number),
}
"""Lower comes first; `priority` (vLLM's, lower is more urgent) before anything else."""


def _by_length(one: Generation) -> Rank:
    """Those who have lost their row first, whatever their length: they have waited already."""
    return (0, 0) if one.preemptions else (1, len(one.prompt))


class Waiting:
    """Requests in order; the owner locks."""

    def __init__(self, order: PrefillOrder) -> None:
        self._rank = ORDERS[order]
        self._queue: list[Generation] = []

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Generation]:
        return iter(self._queue)

    def __getitem__(self, place: int) -> Generation:
        return self._queue[place]

    def add(self, one: Generation) -> None:
        """Queue a request where it belongs."""
        insort(self._queue, one, key=self._rank)

    def remove(self, some: Iterable[Generation]) -> None:
        """Take requests out."""
        gone = set(map(id, some))
        self._queue = [one for one in self._queue if id(one) not in gone]

    def drop_cancelled(self) -> None:
        """Forget those whose client has gone."""
        if any(one.cancelled for one in self._queue):
            self._queue = [one for one in self._queue if not one.cancelled]
