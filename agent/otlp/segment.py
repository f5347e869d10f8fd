"""Segments, the files of a spool: records one after the other, each with check sums of its head and its body.

A head is 33 bytes, little endian: length of the body, signal, items, batch id, CRC-32 of the body, CRC-32 of
the head before it.
"""

import errno
import os
import struct
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from agent.otlp.batch import BATCH_ID_BYTES, Batch
from agent.otlp.codec import Signal

_FIELDS = struct.Struct(f"<IBI{BATCH_ID_BYTES}sI")
_CHECK = struct.Struct("<I")
HEAD_BYTES = _FIELDS.size + _CHECK.size
_SIGNALS = (Signal.TRACES, Signal.METRICS, Signal.LOGS)


@dataclass(frozen=True)
class Head:
    """What a record says of its body."""

    length: int
    signal: Signal
    items: int
    batch_id: bytes
    body_crc: int

    @property
    def record_bytes(self) -> int:
        """Return the bytes of head and body."""
        return HEAD_BYTES + self.length

    def batch(self, body: bytes) -> Batch | None:
        """Return the batch, None where the body is not the one that was written."""
        if len(body) != self.length or zlib.crc32(body) != self.body_crc:
            return None
        return Batch(self.signal, body, self.items, self.batch_id)


def encode_head(batch: Batch) -> bytes:
    """Return the head of a batch's record."""
    fields = _FIELDS.pack(
        len(batch.body),
        _SIGNALS.index(batch.signal),
        batch.items,
        batch.batch_id,
        zlib.crc32(batch.body),
    )
    return fields + _CHECK.pack(zlib.crc32(fields))


def decode_head(raw: bytes) -> Head | None:
    """Return a head, None for bytes that are none: cut short, zeroed, or damaged."""
    if (
        len(raw) != HEAD_BYTES
        or zlib.crc32(raw[: _FIELDS.size]) != _CHECK.unpack_from(raw, _FIELDS.size)[0]
    ):
        return None
    length, signal, items, batch_id, body_crc = _FIELDS.unpack_from(raw)
    if signal >= len(_SIGNALS):
        return None
    return Head(length, _SIGNALS[signal], items, batch_id, body_crc)


@dataclass
class Segment:
    """One file: its size, and what of it is still to be sent."""

    path: Path
    number: int
    size: int = 0
    items: Counter[Signal] = field(default_factory=Counter)


def path_of(folder: Path, number: int) -> Path:
    """Return where a segment lies; names sort by age."""
    return folder / f"{number:016d}.seg"


def find(folder: Path) -> list[Segment]:
    """Return the segments of a folder, the oldest first, without looking into them."""
    named = ((path, path.stem) for path in folder.glob("*.seg"))
    known = [Segment(path, int(stem)) for path, stem in named if stem.isascii() and stem.isdigit()]
    return sorted(known, key=lambda segment: segment.number)


def survey(segment: Segment, from_offset: int) -> bool:
    """Fill in size and items from the heads, those before the offset left out.

    What follows the last whole record is cut off the file: then the result is False.
    """
    descriptor = os.open(segment.path, os.O_RDWR | os.O_CLOEXEC)
    try:
        file_bytes = os.fstat(descriptor).st_size
        offset = 0
        while (head := decode_head(os.pread(descriptor, HEAD_BYTES, offset))) is not None:
            if offset + head.record_bytes > file_bytes:
                break
            if offset >= from_offset:
                segment.items[head.signal] += head.items
            offset += head.record_bytes
        segment.size = offset
        if offset < file_bytes:
            os.ftruncate(descriptor, offset)
        return offset == file_bytes
    finally:
        os.close(descriptor)


class Writer:
    """Appends records to a new segment; raises `OSError`, and then the segment is as it was before."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(segment.path, flags, 0o600)

    def append(self, batch: Batch) -> None:
        """Write one record."""
        segment = self._segment
        length = HEAD_BYTES + len(batch.body)
        written = os.writev(self._descriptor, (encode_head(batch), batch.body))
        if written < length:  # the disk is full
            os.ftruncate(self._descriptor, segment.size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(segment.path))
        segment.size += length
        segment.items[batch.signal] += batch.items

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
