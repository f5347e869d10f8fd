"""The tenant directory in a real PostgreSQL: right answers, and a server that is slow, frozen, killed or empty."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager

import pytest

from ebpf.hook.library import SpanLibrary
from kernels.workload.breaker import OPEN, UnavailableError
from kernels.workload.clock import Clock
from kernels.workload.postgres import Session
from kernels.workload.tenants import ANYONE, Tenant, TenantDirectory
from kernels.workload.tenants_postgres import QUERY, PostgresTenants
from kernels.workload.work import Work
from tests.support.postgres_server import Postgres

ROWS = 500
KNOWN = Tenant(id=4, plan="team", max_tokens=256)
INDEXED = "tailcause_1_500_indexed.tenants"
PATIENT_S = 60.0
LIMIT_S = 1.5


class Marks(SpanLibrary):
    """Notes which thread marks what."""

    def __init__(self) -> None:
        self.made: list[tuple[str, int, str]] = []

    def start(self, trace_id: int, span_id: int) -> None:
        """Note a start."""
        self.made.append(("start", span_id, threading.current_thread().name))

    def end(self, trace_id: int, span_id: int) -> None:
        """Note an end."""
        self.made.append(("end", span_id, threading.current_thread().name))


@asynccontextmanager
async def directory(
    database: Postgres, timeout_s: float, *, rows: int = ROWS, indexed: bool = True
) -> AsyncIterator[TenantDirectory]:
    """Open a directory of two threads."""
    opened = TenantDirectory(PostgresTenants(database.url, rows, indexed, timeout_s), threads=2)
    try:
        await opened.open()
        yield opened
    finally:
        opened.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, on a busy machine too."""
    async with asyncio.timeout(PATIENT_S):
        while not condition():  # noqa: ASYNC110 - other processes decide
            await asyncio.sleep(0.02)


@contextmanager
def refused(*reasons: str) -> Iterator[None]:
    """Expect a look-up to fail for one of these reasons."""
    with pytest.raises(UnavailableError) as failure:
        yield
    assert failure.value.reason in reasons


@pytest.mark.parametrize("indexed", [True, False])
async def test_a_tenant_is_found_with_and_without_index(database: Postgres, indexed: bool) -> None:
    """The same answers as SQLite's, for names that mean harm too."""
    names = [
        "tenant-0004",
        " Tenant-0004 ",
        "nobody",
        "",
        "x'; DROP TABLE tenants; --",
        "a\0b",
        "💡",
    ]
    async with directory(database, PATIENT_S, indexed=indexed) as tenants:
        found = [await tenants.find(name) for name in names]
    assert found == [KNOWN, KNOWN, *[ANYONE] * 5]


@pytest.mark.parametrize(("indexed", "plan"), [(True, "Index Scan"), (False, "Seq Scan")])
async def test_without_index_the_table_is_scanned(
    database: Postgres, indexed: bool, plan: str
) -> None:
    """PostgreSQL's own plan says which of the two happens."""
    source = PostgresTenants(database.url, 20_000, indexed, PATIENT_S)
    source.prepare()
    schema = source.database.namespace.partition("|")[2]
    with database.connect() as connection:
        connection.execute(f"SET search_path = {schema}")
        query = QUERY.replace("$1", "'tenant-0001'")
        rows = connection.execute(f"EXPLAIN {query}").fetchall()
        count = connection.execute("SELECT count(*) FROM tenants").fetchone()
    assert plan in str(rows[0][0])
    assert count == (20_000,)


def test_servers_that_start_together_build_it_once(database: Postgres) -> None:
    """One builds, the others wait for it; nobody fails and no row is there twice."""
    source = PostgresTenants(database.url, 3_000, indexed=True, timeout_s=PATIENT_S)
    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(source.prepare) for _ in range(6)]:
            done.result()
    with database.connect() as connection:
        assert connection.execute(
            "SELECT count(*) FROM tailcause_1_3000_indexed.tenants"
        ).fetchone() == (3_000,)


async def test_a_lock_that_is_held_is_waited_for(database: Postgres) -> None:
    """The look-up ends once the lock is gone, not before, and its work is marked on the thread that waits."""
    marks = Marks()
    tenants = TenantDirectory(
        PostgresTenants(database.url, ROWS, indexed=True, timeout_s=PATIENT_S), 2, marks
    )
    await tenants.open()
    work = Work(7, 8, Clock())
    with database.locked(INDEXED):
        waiting = asyncio.create_task(tenants.find("tenant-0004", work))
        await until(lambda: database.waiting_for_locks() == 1)
        held_until = time.time_ns()
    assert await waiting == KNOWN
    tenants.close()
    assert work.started_ns < held_until < work.ended_ns
    assert [one[:2] for one in marks.made] == [("start", 8), ("end", 8)]
    assert {one[2].rpartition("_")[0] for one in marks.made} == {"sql"}


async def test_a_lock_held_too_long_is_given_up_and_recovered_from(database: Postgres) -> None:
    """The deadline ends the look-up, the next one is not even tried, and nothing goes on in the server."""
    async with directory(database, LIMIT_S) as tenants:
        assert await _found_in_the_end(tenants) == KNOWN
        with database.locked(INDEXED):
            began = time.monotonic()
            with refused("timeout"):
                await tenants.find("tenant-0004")
            took_s = time.monotonic() - began
            with refused(OPEN):
                await tenants.find("tenant-0004")
            await asyncio.to_thread(_until_idle, database)
        assert LIMIT_S * 0.9 < took_s < PATIENT_S
        await until(lambda: tenants.available)
        assert await _found_in_the_end(tenants) == KNOWN


def _until_idle(database: Postgres) -> None:
    deadline = time.monotonic() + PATIENT_S
    while database.waiting_for_locks():
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def _found_in_the_end(tenants: TenantDirectory) -> Tenant:
    """Look up again while a loaded machine makes a short deadline pass."""
    async with asyncio.timeout(PATIENT_S):
        while True:
            try:
                return await tenants.find("tenant-0004")
            except UnavailableError:
                await asyncio.sleep(0.05)


async def test_a_frozen_server_costs_its_deadline_once(database: Postgres) -> None:
    """Then requests go without at no cost, and when it moves again so do they."""
    async with directory(database, LIMIT_S) as tenants:
        assert await _found_in_the_end(tenants) == KNOWN
        with database.store.frozen():
            outcomes = await asyncio.gather(
                *(tenants.find("tenant-0004") for _ in range(20)), return_exceptions=True
            )
            assert {getattr(one, "reason", one) for one in outcomes} == {"timeout"}
            for _ in range(1000):
                with refused(OPEN):
                    await tenants.find("tenant-0004")
        assert await _found_in_the_end(tenants) == KNOWN


async def test_a_killed_server_is_gone_without_and_found_again(database: Postgres) -> None:
    """Look-ups fail at once, not at their deadline; after a restart they are answered without our doing."""
    async with directory(database, PATIENT_S) as tenants:
        database.store.kill()
        began = time.monotonic()
        with refused(
            "connection_lost", "connection_failed", "57P01"
        ):  # the last words of a backend
            await tenants.find("tenant-0004")
        assert time.monotonic() - began < PATIENT_S / 2
        assert not tenants.available
        await asyncio.to_thread(database.start)
        await until(lambda: tenants.available)
        assert await _found_in_the_end(tenants) == KNOWN


async def test_a_server_that_is_away_at_the_start_is_used_once_it_is_there(
    database: Postgres,
) -> None:
    """Starting does not depend on it, and the directory is built when it comes."""
    database.store.kill()
    try:
        async with directory(database, PATIENT_S, rows=77) as tenants:
            with refused(OPEN):
                await tenants.find("tenant-0004")
            await asyncio.to_thread(database.start)
            assert await _found_in_the_end(tenants) == KNOWN
    finally:
        if database.store.process is None:
            database.start()


async def test_a_directory_that_is_dropped_is_built_again(database: Postgres) -> None:
    """The database's own code says what was wrong."""
    async with directory(database, PATIENT_S, rows=66) as tenants:
        with database.connect() as connection:
            connection.execute("DROP SCHEMA tailcause_1_66_indexed CASCADE")
        with refused("42P01", "0A000"):
            await tenants.find("tenant-0004")
        assert await _found_in_the_end(tenants) == KNOWN


def test_who_may_not_connect_is_told_why(database: Postgres) -> None:
    """The message is the server's own."""
    url = database.url.replace("tester@", "stranger@")
    with pytest.raises(UnavailableError, match="stranger"):
        Session.open(url, time.monotonic() + PATIENT_S)


def test_the_database_names_itself(database: Postgres) -> None:
    """Attributes by the conventions; no value of a query is among them."""
    source = PostgresTenants(database.url, ROWS, indexed=True, timeout_s=1)
    assert source.database.attributes() == {
        "db.system.name": "postgresql",
        "db.operation.name": "SELECT",
        "db.collection.name": "tenants",
        "db.query.text": QUERY,
        "db.namespace": "postgres|tailcause_1_500_indexed",
        "server.address": "127.0.0.1",
        "server.port": database.store.port,
    }
