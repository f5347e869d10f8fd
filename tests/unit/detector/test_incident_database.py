"""Incidents on disk."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from detector.errors import NotFoundError, StorageError
from detector.incidents.database import FILE, IncidentDatabase, Status, unpack
from detector.model import Incident, Snapshot
from tests.unit.detector.conftest import RequestMaker, blank_report


def incident(number: int = 0) -> Incident:
    """Return an incident."""
    return Incident(
        id=f"svc-{number}",
        service="svc",
        model="m",
        onset_unix_s=1000.0 + number,
        detected_unix_s=1006.0 + number,
        window_s=2.0,
        series=(),
        windows=(),
        parameters={"sigma": 2.5},
        baseline_start_unix_s=900.0,
    )


def snapshot(number: int = 0) -> Snapshot:
    """Return a snapshot with a span."""
    return Snapshot(incident(number), 1010.0, (RequestMaker()(1001.0, 0.1),), (), {"late": 1})


@pytest.fixture
def database(tmp_path: Path) -> IncidentDatabase:
    """Return an empty database."""
    return IncidentDatabase(tmp_path / FILE, max_incidents=30)


def test_snapshot_and_report_come_back_as_they_were(database: IncidentDatabase) -> None:
    """Replay needs the very same data."""
    database.put(incident(), Status.ANALYSING)
    database.put_snapshot(snapshot())
    database.put_report(blank_report(snapshot()), Status.REPORTED)
    assert unpack(database.packed_snapshot("svc-0") or b"") == snapshot()
    assert database.report("svc-0") == blank_report(snapshot())
    assert database.list()[0].status is Status.REPORTED


def test_a_new_state_keeps_the_report(database: IncidentDatabase) -> None:
    """Closing an incident must not lose its explanation."""
    database.put(incident(), Status.ANALYSING)
    database.put_report(blank_report(snapshot()), Status.REPORTED)
    database.put(replace(incident(), ended_unix_s=1100.0), Status.CLOSED)
    (listed,) = database.list()
    assert (listed.status, listed.ended_unix_s) == (Status.CLOSED, 1100.0)
    assert database.report("svc-0") is not None


def test_the_newest_come_first(database: IncidentDatabase) -> None:
    """And the list is bounded."""
    for number in (2, 0, 1):
        database.put(incident(number), Status.ANALYSING)
    assert [listed.id for listed in database.list(2)] == ["svc-2", "svc-1"]


def test_old_incidents_and_snapshots_make_room(database: IncidentDatabase) -> None:
    """Bounds are counted: 30 incidents here, 20 snapshots."""
    for number in range(33):
        database.put(incident(number), Status.ANALYSING)
        database.put_snapshot(snapshot(number))
    assert len(database.list()) == 30
    assert database.dropped == {"incidents_over_cap": 3, "snapshots_over_cap": 13}
    assert database.packed_snapshot("svc-12") is None
    assert database.packed_snapshot("svc-13") is not None


def test_an_unknown_id_says_where_to_look(database: IncidentDatabase) -> None:
    """The message names the command that lists ids."""
    with pytest.raises(NotFoundError, match="tailcause incidents"):
        database.report("nope")


def test_reading_does_not_write(tmp_path: Path, database: IncidentDatabase) -> None:
    """A reader cannot change what the service owns."""
    database.put(incident(), Status.ANALYSING)
    reader = IncidentDatabase(tmp_path / FILE, read_only=True)
    assert len(reader.list()) == 1
    with pytest.raises(StorageError):
        reader.put(incident(1), Status.ANALYSING)


def test_a_file_that_is_no_database_is_one_clear_error(tmp_path: Path) -> None:
    """Not a traceback of the driver."""
    (tmp_path / FILE).write_bytes(b"not a database at all" * 100)
    with pytest.raises(StorageError, match="cannot open the incident database"):
        IncidentDatabase(tmp_path / FILE)


def test_a_damaged_snapshot_is_one_clear_error() -> None:
    """Bits rot."""
    with pytest.raises(StorageError, match="damaged"):
        unpack(b"garbage")
