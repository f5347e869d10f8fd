"""The tenant directory: who sends a request and how much they may ask for, in SQLite.

Names are matched without regard to case and blanks. That takes an index on the same expression;
without it every look-up reads and normalises every row, which is the classic way to lose one.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ebpf.hook.library import SpanLibrary
from kernels.errors import WorkloadError
from kernels.workload.cache import build_once
from kernels.workload.work import Work

SCHEMA_REVISION = 1
"""Part of the file's name: bump it when the schema or the rows change."""

NORMALISED = "lower(trim(name))"
QUERY = f"SELECT id, plan, max_tokens FROM tenants WHERE {NORMALISED} = lower(trim(?))"  # noqa: S608 - constants

_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE tenants(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, plan TEXT NOT NULL, max_tokens INTEGER NOT NULL
);
"""
_ROWS = """
WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?)
INSERT INTO tenants
SELECT n, printf('tenant-%04d', n),
       CASE n % 3 WHEN 0 THEN 'free' WHEN 1 THEN 'team' ELSE 'enterprise' END, 256
FROM numbers
"""


@dataclass(frozen=True)
class Tenant:
    """One row of the directory."""

    id: int
    plan: str
    max_tokens: int


ANYONE = Tenant(id=-1, plan="free", max_tokens=256)
"""Who a request without a known tenant counts as."""


def tenant_database(cache_dir: Path, rows: int, indexed: bool) -> Path:
    """Path of a directory of `rows` tenants, named tenant-0000 and up, built on first use."""
    name = f"tenants-{SCHEMA_REVISION}-{rows}-{'indexed' if indexed else 'plain'}.db"

    def build(path: Path) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.executescript(_SCHEMA)
            connection.execute("BEGIN")
            connection.execute(_ROWS, (rows,))
            if indexed:
                connection.execute(f"CREATE INDEX tenants_by_name ON tenants({NORMALISED})")
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise WorkloadError(f"cannot write {path}: {error}: free some space") from error
        finally:
            connection.close()

    return build_once(cache_dir / name, build)


class TenantDirectory:
    """Look-ups in a few threads of their own, one connection each."""

    def __init__(self, path: Path, threads: int, library: SpanLibrary | None = None) -> None:
        self._path = path
        self._library = library or SpanLibrary()
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(
            threads, thread_name_prefix="sql", initializer=self._connect
        )

    async def find(self, name: str, work: Work | None = None) -> Tenant:
        """Look a tenant up; ANYONE when the directory does not have it.

        `work` is marked on the thread that does it.
        """
        find = self._find if work is None else self._find_for(work)
        return await asyncio.get_running_loop().run_in_executor(self._pool, find, name)

    def close(self) -> None:
        """Give up queued look-ups; running ones end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _connect(self) -> None:
        # Nothing writes the file once it has its name, so that reads need no locks.
        self._local.connection = sqlite3.connect(f"file:{self._path}?mode=ro&immutable=1", uri=True)

    def _find_for(self, work: Work) -> Callable[[str], Tenant]:
        def find(name: str) -> Tenant:
            work.start(self._library)
            try:
                return self._find(name)
            finally:
                work.end(self._library)

        return find

    def _find(self, name: str) -> Tenant:
        rows = self._local.connection.execute(QUERY, (name,)).fetchall()
        return Tenant(*rows[0]) if rows else ANYONE
