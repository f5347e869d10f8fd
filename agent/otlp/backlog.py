"""The bounded queue between a producer that must not wait and a back end that may be away."""

from collections import deque

from agent.otlp.batch import Batch

__all__ = ["Backlog", "Batch"]


class Backlog:
    """Batches in order of arrival, with their sums; the owner decides what to drop."""

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._batches: deque[Batch] = deque()
        self._items = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def items(self) -> int:
        """Return how many spans and points are queued."""
        return self._items

    def push(self, batch: Batch) -> None:
        """Append a batch, even past the bounds."""
        self._batches.append(batch)
        self._count(batch, 1)

    def push_first(self, batch: Batch) -> None:
        """Put the batch that was popped last back, even past the bounds."""
        self._batches.appendleft(batch)
        self._count(batch, 1)

    def pop(self) -> Batch:
        """Take the oldest batch."""
        batch = self._batches.popleft()
        self._count(batch, -1)
        return batch

    def _count(self, batch: Batch, sign: int) -> None:
        self._items += sign * batch.items
        self._bytes += sign * len(batch.body)

    def has_room_for(self, batch: Batch) -> bool:
        """Tell whether a batch fits beside what is queued."""
        return (
            self._items + batch.items <= self._max_items
            and self._bytes + len(batch.body) <= self._max_bytes
        )

    def could_ever_hold(self, batch: Batch) -> bool:
        """Tell whether a batch fits into an empty queue."""
        return batch.items <= self._max_items and len(batch.body) <= self._max_bytes
