"""The tenant directory: who sends a request and how much they may ask for.

Names are matched without regard to case and blanks. That takes an index on the same expression;
without it every look-up reads and normalises every row, which is the classic way to lose one.
"""

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from ebpf.hook.library import SpanLibrary
from kernels.workload.breaker import Breaker, UnavailableError
from kernels.workload.work import Work

log = logging.getLogger(__name__)

NORMALISED = "lower(trim(name))"
GRACE_S = 0.05
"""What the event loop waits longer than the thread, which should be the one to find the time is up."""


@dataclass(frozen=True)
class Tenant:
    """One row of the directory."""

    id: int
    plan: str
    max_tokens: int


ANYONE = Tenant(id=-1, plan="free", max_tokens=256)
"""Who a request without a known tenant counts as."""


@dataclass(frozen=True)
class Database:
    """How a database calls itself and the look-up, for spans and logs."""

    system: str
    query: str
    namespace: str = ""
    address: str = ""
    port: int = 0

    def attributes(self) -> dict[str, str | int]:
        """Attributes of a look-up's span, by OpenTelemetry's database conventions."""
        named: dict[str, str | int] = {
            "db.system.name": self.system,
            "db.operation.name": "SELECT",
            "db.collection.name": "tenants",
            "db.query.text": self.query,
            "db.namespace": self.namespace,
            "server.address": self.address,
            "server.port": self.port,
        }
        return {name: value for name, value in named.items() if value}


class Connection(Protocol):
    """A connection of one thread."""

    def find(self, name: str, deadline_s: float) -> Tenant:
        """Look a tenant up by `time.monotonic() == deadline_s`. Raises UnavailableError."""

    def close(self) -> None:
        """Let it go."""


class TenantSource(Protocol):
    """Where the directory is kept."""

    @property
    def database(self) -> Database:
        """What look-ups are made in."""

    @property
    def timeout_s(self) -> float | None:
        """How long a look-up may take in all; None where the answer is always worth the wait."""

    def prepare(self) -> None:
        """Make sure that it is there and answers; blocks. Raises UnavailableError."""

    def connect(self, deadline_s: float) -> Connection:
        """Open a connection. Raises UnavailableError."""


class TenantDirectory:
    """Look-ups in a few threads of their own, one connection each."""

    def __init__(
        self,
        source: TenantSource,
        threads: int,
        library: SpanLibrary | None = None,
        slow_s: float = float("inf"),
    ) -> None:
        self._source = source
        self._threads = threads
        self._library = library or SpanLibrary()
        self._slow_s = slow_s
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="sql")
        self._breaker = Breaker(source.database.system, self._probe)

    @property
    def database(self) -> Database:
        """What look-ups are made in."""
        return self._source.database

    @property
    def available(self) -> bool:
        """Whether look-ups are made at all."""
        return self._breaker.closed

    async def open(self) -> None:
        """Get ready, so that nobody pays for it later; a database that is away is waited for while serving."""
        try:
            await self._probe()
            await asyncio.gather(*(self.find("tenant-0000") for _ in range(self._threads)))
        except UnavailableError as error:
            self._breaker.trip(error)

    async def find(self, name: str, work: Work | None = None) -> Tenant:
        """Look a tenant up; ANYONE when the directory does not have it. Raises UnavailableError.

        `work` is marked on the thread that does it.
        """
        self._breaker.check()
        limit_s = self._source.timeout_s
        deadline_s = float("inf") if limit_s is None else time.monotonic() + limit_s
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None if limit_s is None else limit_s + GRACE_S):
                return await loop.run_in_executor(self._pool, self._find, name, deadline_s, work)
        except TimeoutError as error:
            late = UnavailableError("timeout")
            self._breaker.trip(late)
            raise late from error
        except UnavailableError as error:
            self._breaker.trip(error)
            raise

    def close(self) -> None:
        """Give up queued look-ups; running ones end by themselves."""
        self._breaker.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _probe(self) -> None:
        await asyncio.to_thread(self._source.prepare)

    def _find(self, name: str, deadline_s: float, work: Work | None) -> Tenant:
        if time.monotonic() >= deadline_s:
            raise UnavailableError("timeout")
        if work is None:
            return self._ask(name, deadline_s)
        work.start(self._library)
        try:
            return self._ask(name, deadline_s)
        finally:
            work.end(self._library)
            self._log_slow(work)

    def _ask(self, name: str, deadline_s: float) -> Tenant:
        """Ask on this thread's connection; one that has failed is replaced at the next look-up."""
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._source.connect(deadline_s)
        try:
            return connection.find(name, deadline_s)
        except UnavailableError:
            self._local.connection = None
            with suppress(UnavailableError):
                connection.close()
            raise

    def _log_slow(self, work: Work) -> None:
        """Log a look-up that took long: its statement has no values in it, the name stays out of the log."""
        duration_s = (work.ended_ns - work.started_ns) / 1e9
        if duration_s < self._slow_s:
            return
        fields = {
            "db_system": self.database.system,
            "statement": self.database.query,
            "duration_s": round(duration_s, 6),
            "threshold_s": self._slow_s,
            "trace_id": f"{work.trace_id:032x}",
            "span_id": f"{work.span_id:016x}",
        }
        log.warning("slow query", extra={"fields": fields})
