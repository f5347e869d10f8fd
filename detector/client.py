"""How the command line gets at incidents: from the running service, else from the database."""

import http.client
import json
import socket
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import quote

import msgspec

from detector import state as state_folder
from detector.errors import DetectorError, NotFoundError, StorageError
from detector.incidents.database import FILE, IncidentDatabase, Summary, unpack
from detector.model import Report, Snapshot

_TIMEOUT_S = 10.0

T = TypeVar("T")


class Incidents(Protocol):
    """Read access to incidents."""

    def list(self) -> list[Summary]:
        """Return the newest first."""

    def report(self, incident: str) -> Report | None:
        """Return a report; None while there is none."""

    def snapshot(self, incident: str) -> Snapshot | None:
        """Return what the analysis saw; None when it is not kept any more."""


def open_incidents(state: Path) -> Incidents:
    """Return the running service's view, else the database opened read-only, else nothing."""
    record = state_folder.read_record(state)
    if record is not None and _is_listening(record.host, record.api_port):
        return ServiceIncidents(record.host, record.api_port)
    if not (state / FILE).exists():
        return NoIncidents()
    return StoredIncidents(IncidentDatabase(state / FILE, read_only=True))


def _is_listening(host: str, port: int) -> bool:
    """Tell whether the record is true: after kill -9 its pid may belong to somebody else."""
    try:
        socket.create_connection((host, port), _TIMEOUT_S).close()
    except OSError:
        return False
    return True


class NoIncidents:
    """A state folder in which no service ever ran."""

    def list(self) -> list[Summary]:
        """Return nothing."""
        return []

    def report(self, incident: str) -> Report | None:
        """Raise `NotFoundError`."""
        raise NotFoundError(f"no incident {incident!r}: no service has run here yet")

    def snapshot(self, incident: str) -> Snapshot | None:
        """Raise `NotFoundError`."""
        raise NotFoundError(f"no incident {incident!r}: no service has run here yet")


class StoredIncidents:
    """Straight from the database."""

    def __init__(self, database: IncidentDatabase) -> None:
        self._database = database

    def list(self) -> list[Summary]:
        """Return the newest first."""
        return self._database.list()

    def report(self, incident: str) -> Report | None:
        """Return a report; None while there is none."""
        return self._database.report(incident)

    def snapshot(self, incident: str) -> Snapshot | None:
        """Return what the analysis saw; None when it is not kept any more."""
        blob = self._database.packed_snapshot(incident)
        return unpack(blob) if blob is not None else None


class ServiceIncidents:
    """Over HTTP from the service that runs in the state folder."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    def list(self) -> list[Summary]:
        """Return the newest first."""
        return _decode(self._get("/api/v1/incidents") or b"[]", list[Summary])

    def report(self, incident: str) -> Report | None:
        """Return a report; None while there is none."""
        body = self._get(f"/api/v1/incidents/{quote(incident, safe='')}")
        if body is not None:
            return _decode(body, Report)
        self._check_known(incident)
        return None

    def snapshot(self, incident: str) -> Snapshot | None:
        """Return what the analysis saw; None when it is not kept any more."""
        body = self._get(f"/api/v1/incidents/{quote(incident, safe='')}/snapshot")
        if body is not None:
            return unpack(body)
        self._check_known(incident)
        return None

    def _check_known(self, incident: str) -> None:
        if all(summary.id != incident for summary in self.list()):
            raise NotFoundError(f"no incident {incident!r}: `tailcause incidents` lists them")

    def _get(self, path: str) -> bytes | None:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as exc:
            raise DetectorError(
                f"the service on port {self._port} does not answer ({exc}): is it stuck?"
            ) from exc
        finally:
            connection.close()
        if response.status == 404:
            return None
        if response.status != 200:
            raise StorageError(f"the service answered {response.status}: {_reason(body)}")
        return body


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as exc:
        raise StorageError(f"the service speaks another version: {exc}") from exc


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])[:200]
    except (ValueError, KeyError, TypeError):
        return "no reason given"
