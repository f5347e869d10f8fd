"""From an opened incident to its stored report: wait, take the snapshot, analyse, store."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from msgspec.structs import replace

from detector.config import Config
from detector.errors import StorageError
from detector.incidents.database import IncidentDatabase, Status, unpack
from detector.model import Incident, Report, Snapshot
from detector.pipeline import Pipeline
from detector.trigger import Transitions

_log = logging.getLogger(__name__)

Analyse = Callable[[Snapshot], Report]


class Analyst:
    """Keeps the incident database; one analysis at a time, in a thread."""

    def __init__(
        self, config: Config, pipeline: Pipeline, database: IncidentDatabase, analyse: Analyse
    ) -> None:
        self._delay_s = config.analysis.delay_windows * config.series.window_s
        self._settle_s = config.series.window_s
        self._pipeline = pipeline
        self._database = database
        self._analyse = analyse
        self._waiting: dict[str, tuple[Incident, float]] = {}
        self._open: dict[str, Incident] = {}
        self._due: asyncio.Queue[str] = asyncio.Queue()
        self.failures: Counter[str] = Counter()

    @property
    def incidents_open(self) -> int:
        """How many incidents have not ended."""
        return len(self._open)

    async def follow(self, changes: list[Transitions]) -> None:
        """Store what windows changed and queue the analyses that are due."""
        for change in changes:
            for incident in change.opened:
                _log.warning(
                    "incident opened id=%s service=%s onset_unix_s=%.3f",
                    incident.id, incident.service, incident.onset_unix_s,
                )  # fmt: skip
                end = self._pipeline.last_window_end_unix_s + self._delay_s
                self._waiting[incident.id] = (incident, end)
                self._open[incident.id] = incident
                await self._store(self._database.put, incident, Status.ANALYSING)
            for incident in (*change.reopened, *change.closed):
                await self._move(incident)
        for incident, end in list(self._waiting.values()):
            if self._pipeline.last_window_end_unix_s >= end + self._settle_s:
                del self._waiting[incident.id]
                await self._take_snapshot(incident, end)
                self._due.put_nowait(incident.id)

    async def run(self) -> None:
        """Analyse what is due, for ever."""
        while True:
            await self._answer(await self._due.get())

    def recover(self, now_unix_s: float) -> None:
        """After a restart: end what was open, analyse again what has a snapshot but no report."""
        for summary in self._database.list(1000):
            if summary.status is Status.CLOSED:
                continue
            unfinished = summary.status is Status.ANALYSING
            if unfinished and self._database.packed_snapshot(summary.id) is not None:
                self._due.put_nowait(summary.id)
            elif unfinished:
                self._database.put_error(summary.id, "the service stopped before the analysis")
            incident = self._database.incident(summary.id)
            self._database.put(
                replace(incident, ended_unix_s=incident.ended_unix_s or now_unix_s), Status.CLOSED
            )

    async def stop(self) -> None:
        """Keep the snapshots of incidents that nobody has analysed yet."""
        for incident, _ in self._waiting.values():
            await self._take_snapshot(incident, self._pipeline.last_window_end_unix_s)

    async def _move(self, incident: Incident) -> None:
        """Store that an incident closed or flared up again; the analysis keeps its own status."""
        if incident.ended_unix_s is None:
            self._open[incident.id] = incident
        else:
            self._open.pop(incident.id, None)
        _log.warning(
            "incident moved id=%s ended=%s", incident.id, incident.ended_unix_s is not None
        )
        await self._store(self._refresh, incident)

    def _refresh(self, incident: Incident) -> None:
        has_report = self._database.report(incident.id) is not None
        if not has_report:
            status = Status.ANALYSING
        else:
            status = Status.CLOSED if incident.ended_unix_s is not None else Status.REPORTED
        self._database.put(incident, status)

    async def _take_snapshot(self, incident: Incident, end: float) -> None:
        """Store what was known up to `end`, and the readings just after it: counters are read between."""
        start = incident.baseline_start_unix_s
        snapshot = Snapshot(
            incident=self._pipeline.trigger.picture(incident),
            end_unix_s=end,
            spans=tuple(self._pipeline.source.spans(start, end)),
            points=tuple(self._pipeline.source.points(start, end + self._settle_s)),
            dropped=self._pipeline.dropped_since(start),
        )
        await self._store(self._database.put_snapshot, snapshot)

    async def _answer(self, incident_id: str) -> None:
        try:
            report = await asyncio.to_thread(self._analyse_stored, incident_id)
        except Exception as exc:  # noqa: BLE001  boundary: whatever analysis does, watching goes on
            self.failures["analyses_failed"] += 1
            _log.error("analysis failed id=%s error=%r", incident_id, exc, exc_info=exc)
            await self._store(
                self._database.put_error, incident_id, f"{type(exc).__name__}: {exc}"[:500]
            )
            return
        current = self._open.get(incident_id)
        status = Status.REPORTED if current is not None else Status.CLOSED
        await self._store(self._database.put_report, report, status)
        _log.warning("incident reported id=%s verdict=%s", incident_id, report.verdict)

    def _analyse_stored(self, incident_id: str) -> Report:
        blob = self._database.packed_snapshot(incident_id)
        if blob is None:
            raise StorageError("the snapshot was not stored: is the disk full?")
        return self._analyse(unpack(blob))

    async def _store(self, write: Callable[..., None], *arguments: object) -> None:
        """Write to the database in a thread; trouble is counted and logged, never fatal."""
        try:
            await asyncio.to_thread(write, *arguments)
        except StorageError as exc:
            self.failures["incident_writes_failed"] += 1
            _log.error("incident not stored error=%s", exc)
