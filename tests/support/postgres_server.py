"""A real PostgreSQL of its own for a test."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.support.store_process import (
    StoreProcess,
    as_nobody,
    free_port,
    scratch_folder,
    wait_for_line,
)
from tests.support.store_programs import INITDB, POSTGRES

_QUICK = {
    "fsync": "off", "autovacuum": "off", "max_connections": "30", "shared_buffers": "16MB",
    "jit": "off", "listen_addresses": "127.0.0.1",
}  # fmt: skip


@dataclass
class Postgres:
    """The server; `url` is where it can be reached, without a password."""

    store: StoreProcess

    @property
    def url(self) -> str:
        """Where it is."""
        return f"postgresql://tester@127.0.0.1:{self.store.port}/postgres"

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        written = self.store.log.stat().st_size if self.store.log.exists() else 0
        self.store.start()
        wait_for_line(self.store, "ready to accept connections", written)

    def connect(self) -> "psycopg.Connection[tuple[object, ...]]":
        """Open a connection for the test itself."""
        return psycopg.connect(self.url, autocommit=True, connect_timeout=30)

    def waiting_for_locks(self) -> int:
        """Count the connections that wait for a lock, as the server sees it."""
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        with self.connect() as connection:
            row = connection.execute(waits).fetchone()
        assert row is not None
        return int(str(row[0]))

    @contextmanager
    def locked(self, table: str) -> Iterator[None]:
        """Hold a table's strongest lock for the block, as a migration does."""
        with self.connect() as other, other.transaction():
            other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            yield


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Make a cluster in a folder of its own and serve it on a free port of the loopback."""
    assert INITDB is not None
    assert POSTGRES is not None
    with scratch_folder() as folder:
        data, port = folder / "data", free_port()
        initdb = [INITDB, "-D", str(data), "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(
            as_nobody([*initdb, "--locale=C"]), check=True, capture_output=True, cwd=folder
        )
        settings = {**_QUICK, "port": str(port), "unix_socket_directories": str(folder)}
        words = [POSTGRES, "-D", str(data)]
        words += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        server = Postgres(StoreProcess(words, Path(folder / "log"), port))
        try:
            server.start()
            yield server
        finally:
            server.store.kill()
