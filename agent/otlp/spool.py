"""The queue on disk for what the back end cannot take now: oldest first, bounded, and there after a crash.

Records are written without fsync: what is written survives any end of the process, and the kernel brings it to
the disk within about half a minute, so that a crash of the machine costs the last of it. A record is taken off,
by moving the cursor, after the back end's answer; a process that dies between the two sends it again, with the
same batch id.
"""

import errno
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent.otlp import segment as segments
from agent.otlp.batch import Batch
from agent.otlp.codec import Signal
from agent.otlp.segment import HEAD_BYTES, Head, Segment, Writer
from agent.otlp.spool_folder import Place, check_writable

_log = logging.getLogger(__name__)

FULL, DAMAGED = "spool_full", "spool_damaged"
Lose = Callable[[Signal, int, str], None]
"""Told of items that are lost: their signal, how many, and why."""

_SEGMENTS = 16  # the least that goes at once when the spool is full is one of so many
_LARGEST_SEGMENT = 4 << 20
_REST_S = 5.0  # after a failure to write


@dataclass(frozen=True)
class SpoolSettings:
    """Where a spool lies and how much of the disk it may take."""

    folder: Path
    max_bytes: int


class Spool:
    """A queue of batches in a folder that no other process uses at the same time.

    The folder is made by the first batch and removed when all is sent. No method raises; `off` says
    why there is no spool and is empty while there is one.
    """

    def __init__(
        self,
        settings: SpoolSettings,
        lose: Lose,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._segment_bytes = min(_LARGEST_SEGMENT, max(1, settings.max_bytes // _SEGMENTS))
        self._lose = lose
        self._monotonic_s = monotonic_s
        self._segments: deque[Segment] = deque()
        self._offset = 0
        self._head: tuple[Head, Batch] | None = None
        self._number = 0
        self._place: Place | None = None
        self._writer: Writer | None = None
        self._reading: int | None = None
        self._rests_until_s = 0.0
        self._fails = False
        self.off = ""
        self.write_failures: Counter[str] = Counter()
        """Batches that could not be written, by the name of the error, such as `ENOSPC`; `torn` are those
        that a crash cut off in the middle."""

    def __bool__(self) -> bool:
        return bool(self._segments)

    @property
    def size_bytes(self) -> int:
        """Return how much of the disk is taken."""
        return sum(segment.size for segment in self._segments)

    @property
    def items(self) -> Counter[Signal]:
        """Return what waits, by signal."""
        waiting: Counter[Signal] = Counter()
        for segment in self._segments:
            waiting.update(segment.items)
        return waiting

    def recover(self) -> None:
        """Take up what an earlier process left; sets `off` where the folder cannot be used."""
        if self._place is not None:
            return  # a batch was put in before
        folder = self._settings.folder
        try:
            if not folder.exists():
                check_writable(folder)
                return
            self._open(folder)
        except OSError as exc:
            self.off = f"{folder}: {exc.strerror}"
            _log.warning(
                "event=spool_off folder=%s why=%r lost='what waits in memory when the agent ends' next=%r",
                *(folder, exc.strerror, "give --spool-dir a folder that the agent may write to"),
            )
            return
        if self._segments:
            _log.info("event=spool_found folder=%s items=%d", folder, self.items.total())

    def _open(self, folder: Path) -> None:
        place = Place(folder)
        try:
            self._take_up(folder, *place.cursor())
        except OSError:
            self._segments.clear()
            place.close(remove=False)
            raise
        self._place = place

    def _take_up(self, folder: Path, cursor: int, offset: int) -> None:
        """Find the segments that are there; those before the cursor's are left over and go."""
        self._number = cursor
        for segment in segments.find(folder):
            start = offset if segment.number == cursor else 0
            if not segments.survey(segment, start):
                self.write_failures["torn"] += 1
            self._number = max(self._number, segment.number)
            if segment.size > start and segment.number >= cursor:
                self._segments.append(segment)
            else:
                segment.path.unlink()
        if self._segments and self._segments[0].number == cursor:
            self._offset = offset

    def append(self, batch: Batch) -> bool:
        """Write a batch behind the others; False where that cannot be done now.

        The oldest make room for it, and are lost.
        """
        length = HEAD_BYTES + len(batch.body)
        if self.off or length > self._settings.max_bytes:
            return False
        if self._monotonic_s() < self._rests_until_s:
            self.write_failures["resting"] += 1
            return False
        try:
            if self._place is None:
                self._open(self._settings.folder)
            while self._segments and self.size_bytes + length > self._settings.max_bytes:
                self._drop_oldest()
            self._writer_for(length).append(batch)
        except OSError as exc:
            self._rest(exc)
            return False
        if self._fails:
            _log.info("event=spool_writes_again folder=%s", self._settings.folder)
        self._fails = False
        return True

    def _writer_for(self, length: int) -> Writer:
        if self._writer is not None:
            if self._segments[-1].size + length <= self._segment_bytes:
                return self._writer
            self._end_segment()
        self._number += 1
        segment = Segment(segments.path_of(self._settings.folder, self._number), self._number)
        self._writer = Writer(segment)
        self._segments.append(segment)
        return self._writer

    def _end_segment(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _rest(self, exc: OSError) -> None:
        code = errno.errorcode.get(exc.errno or 0, "unknown")
        if not self._fails:
            _log.warning(
                "event=spool_write_failed folder=%s why=%r", self._settings.folder, str(exc)
            )
        self._fails = True
        self.write_failures[code] += 1
        self._rests_until_s = self._monotonic_s() + _REST_S

    def head(self) -> Batch | None:
        """Return the oldest batch, which stays until `settle`; damaged ones are lost on the way."""
        while self._head is None and self._segments:
            segment = self._segments[0]
            try:
                self._head = self._read(segment)
            except OSError as exc:
                _log.warning("event=spool_unreadable file=%s why=%r", segment.path, str(exc))
                self._lose_rest(segment)
        return None if self._head is None else self._head[1]

    def _read(self, segment: Segment) -> tuple[Head, Batch] | None:
        """Return the record at the offset; None, when there is none, after going on to the next."""
        if self._reading is None:
            self._reading = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        head = segments.decode_head(os.pread(self._reading, HEAD_BYTES, self._offset))
        if head is None:
            self._lose_rest(segment)
            return None
        batch = head.batch(os.pread(self._reading, head.length, self._offset + HEAD_BYTES))
        if batch is None:
            self._lose(head.signal, head.items, DAMAGED)
            self._pass(head)
            return None
        return head, batch

    def _lose_rest(self, segment: Segment) -> None:
        for signal, items in segment.items.items():
            self._lose(signal, items, DAMAGED)
        self._drop_first()

    def settle(self, batch: Batch) -> bool:
        """Take the batch off that `head` returned; False where it is gone already."""
        if self._head is None or not self.holds(batch):
            return False
        self._pass(self._head[0])
        return True

    def holds(self, batch: Batch) -> bool:
        """Tell whether a batch is still the oldest."""
        return self._head is not None and self._head[1].batch_id == batch.batch_id

    def _pass(self, head: Head) -> None:
        segment = self._segments[0]
        self._head = None
        self._offset += head.record_bytes
        segment.items[head.signal] -= head.items
        if self._offset >= segment.size:
            self._drop_first()
        elif self._place is not None:
            try:
                self._place.move_cursor(segment.number, self._offset)
            except OSError as exc:
                self._rest(exc)  # it is sent again, if the process dies before the next one

    def _drop_oldest(self) -> None:
        """Lose a segment; the batch at the head is in the sender's hands, and the sender counts it."""
        segment = self._segments[0]
        if self._head is not None:
            segment.items[self._head[1].signal] -= self._head[1].items
            self._head = None
        for signal, items in segment.items.items():
            if items:
                self._lose(signal, items, FULL)
        self._drop_first()

    def _drop_first(self) -> None:
        segment = self._segments[0]
        if len(self._segments) == 1:
            self._end_segment()
        self._segments.popleft()
        if self._reading is not None:
            os.close(self._reading)
            self._reading = None
        self._offset = 0
        try:
            segment.path.unlink(missing_ok=True)
        except OSError as exc:
            _log.warning("event=spool_not_removed file=%s why=%r", segment.path, str(exc))

    def close(self) -> None:
        """Let the folder go; it is removed where nothing is left in it."""
        self._end_segment()
        if self._reading is not None:
            os.close(self._reading)
            self._reading = None
        if self._place is None:
            return
        try:
            self._place.close(remove=not self._segments)
        except OSError as exc:
            _log.warning("event=spool_not_closed folder=%s why=%r", self._settings.folder, str(exc))
        self._place = None
