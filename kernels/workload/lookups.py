"""What a request looks up before it is generated: its tenant, and whether its completion is known.

Both stores may be away. Then the request is served without, its span and a counter say why.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from opentelemetry.trace import SpanKind

from kernels.workload.breaker import OPEN, UnavailableError
from kernels.workload.metrics import Metrics
from kernels.workload.spans import RequestTrace, Value
from kernels.workload.tenants import ANYONE, Tenant, TenantDirectory


class CompletionStore(Protocol):
    """Where finished completions are kept."""

    @property
    def attributes(self) -> Mapping[str, Value]:
        """Attributes of a look-up's span; none where it is no call to anybody else."""

    @property
    def available(self) -> bool:
        """Whether it is asked at all."""

    async def open(self) -> None:
        """Get ready."""

    async def find(self, key: bytes) -> tuple[int, ...] | None:
        """Tokens of the completion, or None. Raises UnavailableError."""

    def put(self, key: bytes, tokens: Sequence[int]) -> None:
        """Keep a finished completion."""

    async def close(self) -> None:
        """Let go of it."""


class Lookups:
    """The look-ups of all requests; used in the event loop."""

    def __init__(
        self, tenants: TenantDirectory, completions: CompletionStore, metrics: Metrics
    ) -> None:
        self._tenants = tenants
        self._completions = completions
        self._metrics = metrics
        self._database: dict[str, Value] = {**tenants.database.attributes()}
        self._store = str(completions.attributes.get("db.system.name", ""))
        metrics.watch_store(tenants.database.system, lambda: tenants.available)
        if self._store:
            metrics.watch_store(self._store, lambda: completions.available)

    async def open(self) -> None:
        """Get the stores ready before the first request."""
        await self._tenants.open()
        await self._completions.open()

    async def close(self) -> None:
        """Let go of the stores."""
        self._tenants.close()
        await self._completions.close()

    async def tenant(self, trace: RequestTrace, name: str) -> Tenant:
        """Look up who asks; ANYONE for a name that is not known, and while the directory is away."""
        work = trace.work()
        attributes = self._database
        try:
            return await self._tenants.find(name, work)
        except UnavailableError as error:
            attributes = attributes | _failure(error)
            self._metrics.count_store_error(self._tenants.database.system, error.reason)
            return ANYONE
        finally:
            trace.add_work(work, "sql SELECT tenants", "sql wait", attributes)

    async def completion(self, trace: RequestTrace, key: bytes) -> tuple[int, ...] | None:
        """Look a completion up; None when it is not known, and while the store is away."""
        kind = SpanKind.CLIENT if self._store else SpanKind.INTERNAL
        span = trace.child("cache lookup", kind, self._completions.attributes)
        known: tuple[int, ...] | None = None
        try:
            known = await self._completions.find(key)
        except UnavailableError as error:
            trace.fail(span, _failure(error))
            self._metrics.count_store_error(self._store, error.reason)
        finally:
            span.set_attribute("tailcause.cache.hit", known is not None)
            trace.close(span)
        self._metrics.cache_queries.inc()
        self._metrics.cache_hits.inc(known is not None)
        return known

    def keep(self, key: bytes, tokens: Sequence[int]) -> None:
        """Keep a completion for the next one who asks."""
        self._completions.put(key, tokens)


def _failure(error: UnavailableError) -> dict[str, Value]:
    """Attributes of a look-up that got no answer; a code of five capitals and digits is the database's own."""
    attributes: dict[str, Value] = {"error.type": error.reason}
    if error.reason != OPEN and len(error.reason) == 5 and error.reason.isalnum():
        attributes["db.response.status_code"] = error.reason
    return attributes
