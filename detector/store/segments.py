"""Parquet segments on disk: written in the background, bounded in size, read back after a restart."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from agent.telemetry.model import Point, Span
from detector.store import schema

_log = logging.getLogger(__name__)


class Segments:
    """A folder of `spans-FIRST-LAST-SEQUENCE.parquet` and `points-…`; names carry times in ns.

    Disk trouble never reaches the caller: it is logged once per spell, counted, and what could not be written
    lives on in memory only.
    """

    def __init__(self, folder: Path, cap_bytes: int) -> None:
        self._folder = folder
        self._cap_bytes = cap_bytes
        self._sequence = 0
        self._failing = False
        self.dropped: Counter[str] = Counter()

    def write(self, spans: Sequence[Span], points: Sequence[Point]) -> None:
        """Write what came since the last call, then delete the oldest segments over the cap."""
        if spans:
            ends = [span.end_unix_ns for span in spans]
            self._write("spans", min(ends), max(ends), schema.spans_table(spans))
        if points:
            times = [point.time_unix_ns for point in points]
            self._write("points", min(times), max(times), schema.points_table(points))
        self._trim()

    def recent_spans(self, since_unix_ns: int) -> Iterator[Span]:
        """Spans of all segments that reach past `since_unix_ns`, oldest segment first."""
        for table in self._tables("spans", since_unix_ns):
            yield from schema.read_spans(table)

    def recent_points(self, since_unix_ns: int) -> Iterator[Point]:
        """Points of all segments that reach past `since_unix_ns`, oldest segment first."""
        for table in self._tables("points", since_unix_ns):
            yield from schema.read_points(table)

    def _write(self, kind: str, first_ns: int, last_ns: int, table: pa.Table) -> None:
        name = f"{kind}-{first_ns:020d}-{last_ns:020d}-{self._sequence:06d}.parquet"
        temporary = self._folder / f".{name}"
        self._sequence += 1
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, temporary, compression="zstd")
            temporary.replace(self._folder / name)
        except (OSError, pa.ArrowException) as exc:
            self._fail(kind, table.num_rows, exc, temporary)
        else:
            self._failing = False

    def _fail(self, kind: str, rows: int, exc: Exception, temporary: Path) -> None:
        self.dropped[f"{kind}_not_written"] += rows
        if not self._failing:
            _log.error(
                "segment not written, going on in memory only folder=%s error=%r", self._folder, exc
            )
        self._failing = True
        try:
            temporary.unlink(missing_ok=True)
        except OSError:
            self.dropped["segments_not_removed"] += 1

    def _trim(self) -> None:
        try:
            sizes = [(path, path.stat().st_size) for path in self._all()]
        except OSError:
            self.dropped["segments_not_listed"] += 1
            return
        excess = sum(size for _, size in sizes) - self._cap_bytes
        for path, size in sizes:
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            self.dropped["segments_over_cap"] += 1
            excess -= size

    def _all(self) -> list[Path]:
        """All segments, by the time of their first record."""
        return sorted(self._folder.glob("*.parquet"), key=lambda path: path.name.split("-", 1)[1])

    def _tables(self, kind: str, since_unix_ns: int) -> Iterator[pa.Table]:
        for path in self._all():
            parts = path.stem.split("-")
            if parts[0] != kind or len(parts) != 4 or int(parts[2]) < since_unix_ns:
                continue
            try:
                yield pq.read_table(path)
            except (OSError, pa.ArrowException) as exc:
                self.dropped["segments_unreadable"] += 1
                _log.warning("segment unreadable, skipped path=%s error=%r", path, exc)
