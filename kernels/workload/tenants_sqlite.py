"""The tenant directory in a SQLite file of its own: the default, which needs no server."""

import sqlite3
from pathlib import Path

from kernels.errors import WorkloadError
from kernels.workload.cache import build_once
from kernels.workload.tenants import ANYONE, NORMALISED, Connection, Database, Tenant

SCHEMA_REVISION = 1
"""Part of the file's name: bump it when the schema or the rows change."""

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


class SqliteTenants:
    """The file, read in place; without a deadline, as it cannot be away: what it costs is the server's own work."""

    timeout_s = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self.database = Database("sqlite", QUERY, namespace=path.name)

    def prepare(self) -> None:
        """Nothing to do: the file was built before."""

    def connect(self, deadline_s: float) -> Connection:  # noqa: ARG002 - a file opens at once
        """Open the file; nothing writes it once it has its name, so that reads need no locks."""
        return _File(sqlite3.connect(f"file:{self._path}?mode=ro&immutable=1", uri=True))


class _File:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def find(self, name: str, deadline_s: float) -> Tenant:  # noqa: ARG002 - no deadline
        rows = self._connection.execute(QUERY, (name,)).fetchall()
        return Tenant(*rows[0]) if rows else ANYONE

    def close(self) -> None:
        self._connection.close()
