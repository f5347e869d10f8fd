"""A real Redis of its own for a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.store_process import (
    StoreProcess,
    free_port,
    scratch_folder,
    wait_for_line,
)
from tests.support.store_programs import REDIS


@dataclass
class RedisServer:
    """The server; `url` is where it can be reached."""

    store: StoreProcess

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis://127.0.0.1:{self.store.port}/0"

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        written = self.store.log.stat().st_size if self.store.log.exists() else 0
        self.store.start()
        wait_for_line(self.store, "Ready to accept connections", written)


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    """Serve an empty Redis that keeps nothing on disk, on a free port of the loopback."""
    assert REDIS is not None
    with scratch_folder() as folder:
        port = free_port()
        words = [REDIS, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
        words += ["--save", "", "--appendonly", "no", "--protected-mode", "yes"]
        server = RedisServer(StoreProcess(words, folder / "log", port))
        try:
            server.start()
            yield server
        finally:
            server.store.kill()
