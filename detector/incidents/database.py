"""STATE/incidents.sqlite: each incident with the snapshot that was analysed and the report."""

import sqlite3
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from detector.errors import NotFoundError, StorageError
from detector.model import Incident, Report, Snapshot

FILE = "incidents.sqlite"
_KEPT_SNAPSHOTS = 20
_MOST_SNAPSHOT_BYTES = 2 << 30
_MOST_LISTED = 1000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS incidents (
    id TEXT PRIMARY KEY,
    service TEXT NOT NULL,
    model TEXT NOT NULL,
    status TEXT NOT NULL,
    onset_unix_s REAL NOT NULL,
    detected_unix_s REAL NOT NULL,
    verdict TEXT NOT NULL DEFAULT '',
    headline TEXT NOT NULL DEFAULT '',
    error TEXT NOT NULL DEFAULT '',
    incident BLOB NOT NULL,
    snapshot BLOB,
    report BLOB
);
CREATE INDEX IF NOT EXISTS by_onset ON incidents (onset_unix_s);
PRAGMA user_version = 1;
"""


class Status(StrEnum):
    """Where an incident is; `closed` means in band again (its report stays)."""

    ANALYSING = "analysing"
    REPORTED = "reported"
    CLOSED = "closed"


class Summary(msgspec.Struct, frozen=True):
    """One line of the list of incidents; `error` says why there is no report."""

    id: str
    service: str
    model: str
    status: Status
    verdict: str
    headline: str
    onset_unix_s: float
    detected_unix_s: float
    ended_unix_s: float | None = None
    error: str = ""


class IncidentDatabase:
    """One connection, used from any thread, one statement at a time."""

    def __init__(self, path: Path, *, read_only: bool = False, max_incidents: int = 200) -> None:
        self._lock = threading.Lock()
        self._max_incidents = max_incidents
        self.dropped: Counter[str] = Counter()
        mode = "ro" if read_only else "rwc"
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        try:
            self._connection = sqlite3.connect(
                uri, uri=True, check_same_thread=False, isolation_level=None, timeout=5.0
            )
            if not read_only:
                self._connection.execute("PRAGMA journal_mode=WAL")
                self._connection.executescript(_SCHEMA)
        except sqlite3.Error as exc:
            raise StorageError(f"cannot open the incident database {path}: {exc}") from exc

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def put(self, incident: Incident, status: Status) -> None:
        """Store a new incident or a new state of one; snapshot and report stay."""
        with self._statement() as execute:
            execute(
                "INSERT INTO incidents"
                " (id, service, model, status, onset_unix_s, detected_unix_s, incident)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET status = excluded.status, incident = excluded.incident",
                (
                    incident.id,
                    incident.service,
                    incident.model,
                    status.value,
                    incident.onset_unix_s,
                    incident.detected_unix_s,
                    msgspec.msgpack.encode(incident),
                ),
            )
        self._prune()

    def put_snapshot(self, snapshot: Snapshot) -> None:
        """Store what the analysis will see, and let go of the oldest snapshots."""
        blob = pack(snapshot)
        with self._statement() as execute:
            execute("UPDATE incidents SET snapshot = ? WHERE id = ?", (blob, snapshot.incident.id))
        self._prune_snapshots()

    def put_report(self, report: Report, status: Status) -> None:
        """Store the answer."""
        with self._statement() as execute:
            execute(
                "UPDATE incidents SET report = ?, verdict = ?, headline = ?, status = ?, error = ''"
                " WHERE id = ?",
                (
                    msgspec.msgpack.encode(report),
                    report.verdict.value,
                    report.headline,
                    status.value,
                    report.incident.id,
                ),
            )

    def put_error(self, incident: str, error: str) -> None:
        """Store why an incident has no report."""
        with self._statement() as execute:
            execute("UPDATE incidents SET error = ? WHERE id = ?", (error, incident))

    def list(self, limit: int = 200) -> list[Summary]:
        """Return the newest incidents first."""
        with self._statement() as execute:
            rows = execute(
                "SELECT id, service, model, status, verdict, headline, onset_unix_s,"
                " detected_unix_s, error, incident FROM incidents"
                " ORDER BY onset_unix_s DESC, id LIMIT ?",
                (max(0, min(limit, _MOST_LISTED)),),
            ).fetchall()
        return [_summary(*row) for row in rows]

    def incident(self, incident: str) -> Incident:
        """Return an incident by id; raises `NotFoundError`."""
        blob = self._column("incident", incident) or b""
        return msgspec.msgpack.decode(blob, type=Incident)

    def report(self, incident: str) -> Report | None:
        """Return the report of an incident; None while there is none."""
        blob = self._column("report", incident)
        return msgspec.msgpack.decode(blob, type=Report) if blob is not None else None

    def packed_snapshot(self, incident: str) -> bytes | None:
        """Return the stored snapshot as `unpack` takes it; None when it is not there (any more)."""
        return self._column("snapshot", incident)

    def _column(self, column: str, incident: str) -> bytes | None:
        with self._statement() as execute:
            row = execute(
                f"SELECT {column} FROM incidents WHERE id = ?",  # noqa: S608  names of our own
                (incident,),
            ).fetchone()
        if row is None:
            raise NotFoundError(f"no incident {incident!r}: `tailcause incidents` lists them")
        value: bytes | None = row[0]
        return value

    def _prune(self) -> None:
        with self._statement() as execute:
            gone = execute(
                "DELETE FROM incidents WHERE id NOT IN"
                " (SELECT id FROM incidents ORDER BY onset_unix_s DESC LIMIT ?)",
                (self._max_incidents,),
            ).rowcount
        self.dropped["incidents_over_cap"] += gone

    def _prune_snapshots(self) -> None:
        """Keep the newest snapshots, by number and by bytes."""
        with self._statement() as execute:
            sizes = execute(
                "SELECT id, length(snapshot) FROM incidents WHERE snapshot IS NOT NULL"
                " ORDER BY onset_unix_s DESC"
            ).fetchall()
            total = 0
            for rank, (incident, size) in enumerate(sizes):
                total += size
                if rank >= _KEPT_SNAPSHOTS or (rank > 0 and total > _MOST_SNAPSHOT_BYTES):
                    execute("UPDATE incidents SET snapshot = NULL WHERE id = ?", (incident,))
                    self.dropped["snapshots_over_cap"] += 1

    @contextmanager
    def _statement(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        try:
            with self._lock:
                yield self._connection.execute
        except sqlite3.Error as exc:
            raise StorageError(f"the incident database failed: {exc}") from exc


def _summary(*row: Any) -> Summary:
    *columns, error, incident = row
    ended = msgspec.msgpack.decode(incident, type=Incident).ended_unix_s
    fields = dict(zip(Summary.__struct_fields__, columns, strict=False))
    fields["status"] = Status(fields["status"])
    return Summary(**fields, ended_unix_s=ended, error=error)


def pack(snapshot: Snapshot) -> bytes:
    """Return a snapshot as compressed msgpack."""
    return zlib.compress(msgspec.msgpack.encode(snapshot), level=1)


def unpack(blob: bytes) -> Snapshot:
    """Return the reverse of `pack`; raises `StorageError` when the bytes are damaged."""
    try:
        return msgspec.msgpack.decode(zlib.decompress(blob), type=Snapshot)
    except (zlib.error, msgspec.MsgspecError) as exc:
        raise StorageError(f"the stored snapshot is damaged: {exc}") from exc
