"""The bounded queue between a producer that must not wait and a back end that may be away."""

from collections import deque
from dataclasses import dataclass

from agent.otlp.codec import Signal


@dataclass(frozen=True)
class Batch:
    """One encoded request and how many spans or points it holds."""

    signal: Signal
    body: bytes
    items: int


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
        self._items += batch.items
        self._bytes += len(batch.body)

    def pop(self) -> Batch:
        """Take the oldest batch."""
        batch = self._batches.popleft()
        self._items -= batch.items
        self._bytes -= len(batch.body)
        return batch

    def has_room_for(self, batch: Batch) -> bool:
        """Tell whether a batch fits beside what is queued."""
        return (
            self._items + batch.items <= self._max_items
            and self._bytes + len(batch.body) <= self._max_bytes
        )

    def could_ever_hold(self, batch: Batch) -> bool:
        """Tell whether a batch fits into an empty queue."""
        return batch.items <= self._max_items and len(batch.body) <= self._max_bytes
