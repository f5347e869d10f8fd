"""The tenant directory on a real database file."""

import sqlite3
import threading
from pathlib import Path

import pytest

from ebpf.hook.library import SpanLibrary
from kernels.errors import WorkloadError
from kernels.workload.clock import Clock
from kernels.workload.tenants import ANYONE, Tenant, TenantDirectory
from kernels.workload.tenants_sqlite import QUERY, SqliteTenants, tenant_database
from kernels.workload.work import Work


@pytest.mark.parametrize("indexed", [True, False])
async def test_a_tenant_is_found_with_and_without_index(tmp_path: Path, indexed: bool) -> None:
    """The index changes the cost of a look-up, not its answer."""
    directory = TenantDirectory(SqliteTenants(tenant_database(tmp_path, 500, indexed)), 2)
    try:
        found = [
            await directory.find(name) for name in ("tenant-0004", " Tenant-0004 ", "nobody", "")
        ]
    finally:
        directory.close()
    expected = Tenant(id=4, plan="team", max_tokens=256)
    assert found == [expected, expected, ANYONE, ANYONE]


@pytest.mark.parametrize(("indexed", "plan"), [(True, "SEARCH"), (False, "SCAN")])
def test_without_index_the_table_is_scanned(tmp_path: Path, indexed: bool, plan: str) -> None:
    """SQLite's own plan says which of the two happens."""
    connection = sqlite3.connect(tenant_database(tmp_path, 500, indexed))
    try:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {QUERY}", ("tenant-0001",)).fetchall()
    finally:
        connection.close()
    assert [plan] == [str(row[3]).split()[0] for row in rows]


def test_the_database_is_built_once(tmp_path: Path) -> None:
    """The second server finds the file of the first and leaves nothing half-built."""
    first = tenant_database(tmp_path, 100, indexed=True)
    built = first.stat().st_mtime_ns
    assert built == tenant_database(tmp_path, 100, indexed=True).stat().st_mtime_ns
    assert [first] == list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A cache folder that is a file says what to pass instead."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(WorkloadError, match="--cache"):
        tenant_database(blocked / "cache", 10, indexed=True)


class Marks(SpanLibrary):
    """Notes which thread marks what."""

    def __init__(self) -> None:
        self.made: list[tuple[str, int, int, str]] = []

    def start(self, trace_id: int, span_id: int) -> None:
        """Note a start."""
        self.made.append(("start", trace_id, span_id, threading.current_thread().name))

    def end(self, trace_id: int, span_id: int) -> None:
        """Note an end."""
        self.made.append(("end", trace_id, span_id, threading.current_thread().name))


async def test_a_look_up_is_marked_where_its_work_is_done(tmp_path: Path) -> None:
    """Both marks come from the directory's thread, and the span's times lie between them, after the wait for it."""
    marks = Marks()
    directory = TenantDirectory(
        SqliteTenants(tenant_database(tmp_path, 500, indexed=True)), 1, marks
    )
    work = Work(7, 8, Clock())
    try:
        await directory.find("tenant-0004", work)
    finally:
        directory.close()
    assert [one[:3] for one in marks.made] == [("start", 7, 8), ("end", 7, 8)]
    assert {one[3].rpartition("_")[0] for one in marks.made} == {"sql"}
    assert work.asked_ns < work.started_ns < work.ended_ns
    assert work.close() == (work.started_ns, work.ended_ns)


def test_work_that_nobody_began_has_no_start() -> None:
    """A client that went away while its look-up was queued leaves the wait alone."""
    started_ns, ended_ns = Work(7, 8, Clock()).close()
    assert started_ns == 0
    assert ended_ns > 0


async def test_a_slow_look_up_is_logged_without_its_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The line has the statement, the time and the span's ids; who was looked up is nobody's business."""
    source = SqliteTenants(tenant_database(tmp_path, 500, indexed=False))
    lines = []
    for slow_s in (0.0, 3600.0):
        directory = TenantDirectory(source, 1, slow_s=slow_s)
        try:
            await directory.find("tenant-0004", Work(7, 8, Clock()))
        finally:
            directory.close()
        lines.append([one for one in caplog.records if one.getMessage() == "slow query"])
    assert lines[0] == lines[1]
    (line,) = lines[0]
    fields = vars(line)["fields"]
    assert (fields["trace_id"], fields["span_id"]) == (f"{7:032x}", f"{8:016x}")
    assert (fields["statement"], fields["duration_s"] > 0) == (QUERY, True)
    assert "tenant-0004" not in str(fields)
