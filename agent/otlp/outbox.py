"""What waits to be sent: in memory while the back end takes it, on disk while it does not."""

from collections.abc import Callable

from agent.otlp.backlog import Backlog
from agent.otlp.batch import Batch
from agent.otlp.spool import FULL, Spool

LoseBatch = Callable[[Batch, str], None]


class Outbox:
    """Batches, the oldest first; what is on disk is always older than what is in memory.

    One batch at a time is out: it was taken, and is done with or not. It counts as lost, if it is, by `keep`.
    """

    def __init__(self, backlog: Backlog, spool: Spool | None, lose: LoseBatch) -> None:
        self._backlog = backlog
        self._spool = spool
        self._lose = lose
        self._out: Batch | None = None
        self._out_is_spooled = False

    @property
    def items(self) -> int:
        """Return how many items wait, without those in memory that are out."""
        return self._backlog.items + (self._spool.items.total() if self._spool else 0)

    def put(self, batch: Batch) -> bool:
        """Add a batch; the oldest make room where there is no spool. False if it could never fit."""
        if not self._backlog.could_ever_hold(batch):
            self._lose(batch, "too_large")
            return False
        if self._spool or not self._backlog.has_room_for(batch):
            spooled = self.spill() and self._spool is not None and self._spool.append(batch)
            if spooled:
                return True
        while not self._backlog.has_room_for(batch):
            self._lose(self._backlog.pop(), "overflow")
        self._backlog.push(batch)
        return True

    def spill(self) -> bool:
        """Move what is in memory to the disk; False where that is not possible, or not for all of it."""
        spool = self._spool
        if spool is None or spool.off:
            return False
        if self._out is not None and not self._out_is_spooled:
            if not spool.append(self._out):
                return False
            self._out_is_spooled = spool.head() is not None
        while self._backlog:
            batch = self._backlog.pop()
            if not spool.append(batch):
                self._backlog.push_first(batch)
                return False
        return True

    def take(self) -> Batch | None:
        """Return the oldest batch, None where nothing waits."""
        head = self._spool.head() if self._spool else None
        self._out_is_spooled = head is not None
        if head is None and self._backlog:
            head = self._backlog.pop()
        self._out = head
        return head

    def keep(self, batch: Batch) -> bool:
        """Tell, after an attempt that failed, whether to try again; False if newer ones took its place."""
        if self._out_is_spooled:
            kept, reason = self._spool is not None and self._spool.holds(batch), FULL
        else:
            kept, reason = self._backlog.has_room_for(batch), "overflow"
        if not kept:
            self._out = None
            self._lose(batch, reason)
        return kept

    def done(self, batch: Batch) -> None:
        """Forget the batch that is out: the back end has answered."""
        if self._out_is_spooled and self._spool is not None:
            self._spool.settle(batch)
        self._out = None

    def close(self) -> list[Batch]:
        """Put on disk what is left, as far as possible; return the rest, which nobody will send."""
        self.spill()
        left = [self._out] if self._out is not None and not self._out_is_spooled else []
        self._out = None
        while self._backlog:
            left.append(self._backlog.pop())
        if self._spool is not None:
            self._spool.close()
        return left
