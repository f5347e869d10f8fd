"""The tenant directory in PostgreSQL, in a schema of its own that the first server makes."""

import time
from urllib.parse import urlsplit

from psycopg import pq

from kernels.workload.postgres import Session
from kernels.workload.tenants import ANYONE, NORMALISED, Connection, Database, Tenant

SCHEMA_REVISION = 1
"""Part of the schema's name: bump it when the table or the rows change."""

QUERY = f"SELECT id, plan, max_tokens FROM tenants WHERE {NORMALISED} = lower(trim($1))"  # noqa: S608 - constants

BUILD_S = 60.0
_LOCK = 0x7A11CA05E
"""Key of the advisory lock under which one server builds and the others wait."""

_BUILD = """
BEGIN;
SELECT pg_advisory_xact_lock({lock});
CREATE SCHEMA IF NOT EXISTS {schema};
SET LOCAL search_path = {schema};
CREATE TABLE IF NOT EXISTS tenants(
    id integer PRIMARY KEY, name text NOT NULL, plan text NOT NULL, max_tokens integer NOT NULL
);
INSERT INTO tenants
SELECT n, 'tenant-' || lpad(n::text, greatest(4, length(n::text)), '0'),
       CASE n % 3 WHEN 0 THEN 'free' WHEN 1 THEN 'team' ELSE 'enterprise' END, 256
FROM generate_series(0, {rows} - 1) AS n
WHERE NOT EXISTS (SELECT FROM tenants);
{index}
COMMIT;
ANALYZE {schema}.tenants
"""
_INDEX = f"CREATE INDEX IF NOT EXISTS tenants_by_name ON tenants (({NORMALISED}));"


class PostgresTenants:
    """A table of `rows` tenants, with or without the index; every shape has a schema of its own.

    So a deploy without the index does not take it from the release that still serves.
    """

    def __init__(self, url: str, rows: int, indexed: bool, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._rows = rows
        self._indexed = indexed
        self._schema = f"tailcause_{SCHEMA_REVISION}_{rows}_{'indexed' if indexed else 'plain'}"
        self._conninfo = url
        self.database = _database(url, self._schema)

    def prepare(self) -> None:
        """Build schema, rows and index unless they are there; one transaction, so there is never half of it."""
        session = Session.open(self._conninfo, time.monotonic() + self.timeout_s)
        try:
            there = f"SELECT 1 WHERE to_regclass('{self._schema}.tenants') IS NOT NULL"
            if not session.run(there, time.monotonic() + self.timeout_s):
                session.run(self._build_script(), time.monotonic() + BUILD_S)
        finally:
            session.close()

    def connect(self, deadline_s: float) -> Connection:
        """Open a connection with the look-up prepared."""
        session = Session.open(self._conninfo, deadline_s)
        limit_ms = round(self.timeout_s * 1e3)
        # A look-up that we have given up must not go on over there.
        session.run(
            f"SET search_path = {self._schema}; SET statement_timeout = {limit_ms}", deadline_s
        )
        session.prepare(QUERY, deadline_s)
        return _Lookups(session)

    def _build_script(self) -> str:
        index = _INDEX if self._indexed else ""
        return _BUILD.format(lock=_LOCK, schema=self._schema, rows=self._rows, index=index)


class _Lookups:
    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, name: str, deadline_s: float) -> Tenant:
        rows = self._session.look_up([name], deadline_s)
        if not rows:
            return ANYONE
        number, plan, max_tokens = rows[0]
        return Tenant(int(number), plan.decode(), int(max_tokens))

    def close(self) -> None:
        self._session.close()


def _database(url: str, schema: str) -> Database:
    """Say where a URL leads, as far as it says so itself; what it leaves to libpq stays out."""
    options = {one.keyword.decode(): one.val for one in pq.Conninfo.parse(url.encode())}
    text = {name: value.decode(errors="replace") for name, value in options.items() if value}
    port = text.get("port", "")
    name = text.get("dbname") or urlsplit(url).username or ""
    return Database(
        system="postgresql",
        query=QUERY,
        namespace=f"{name}|{schema}",
        address=text.get("host", ""),
        port=int(port) if port.isdigit() else 0,
    )
