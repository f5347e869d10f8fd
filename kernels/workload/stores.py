"""Puts the stores of a server together: its own files and memory, or the PostgreSQL and Redis that it is told of."""

from pathlib import Path

from ebpf.hook.library import SpanLibrary
from kernels.errors import WorkloadError
from kernels.workload.lookups import CompletionStore, Lookups
from kernels.workload.metrics import Metrics
from kernels.workload.prompt_cache import PromptCache
from kernels.workload.settings import Settings
from kernels.workload.tenants import TenantDirectory, TenantSource
from kernels.workload.tenants_sqlite import SqliteTenants, tenant_database


def prepare_tenants(settings: Settings, cache_dir: Path) -> Path | None:
    """Build the tenant file unless it is there; None where the directory is in PostgreSQL."""
    if settings.tenant_db:
        return None
    return tenant_database(cache_dir, settings.sql_rows, settings.tenant_index)


def make_lookups(
    settings: Settings, tenants: Path | None, model: str, library: SpanLibrary, metrics: Metrics
) -> Lookups:
    """Wire the stores up in a running event loop; nothing is connected yet."""
    directory = TenantDirectory(
        _postgres(settings) if tenants is None else SqliteTenants(tenants),
        settings.sql_threads,
        library,
        settings.sql_slow_s,
    )
    return Lookups(directory, _completions(settings, model, metrics), metrics)


def _postgres(settings: Settings) -> TenantSource:
    from psycopg import Error  # noqa: PLC0415 - 30 MB that a server without PostgreSQL has no use for

    from kernels.workload.tenants_postgres import PostgresTenants  # noqa: PLC0415

    try:
        return PostgresTenants(
            settings.tenant_db, settings.sql_rows, settings.tenant_index, settings.sql_timeout_s
        )
    except Error as error:
        raise WorkloadError(f"--set tenant_db: {error}") from error


def _completions(settings: Settings, model: str, metrics: Metrics) -> CompletionStore:
    if isinstance(settings.prompt_cache, int):
        return PromptCache(settings.prompt_cache)
    from kernels.workload.redis_cache import RedisCache  # noqa: PLC0415 - as above

    try:
        return RedisCache(
            settings.prompt_cache, model, settings.cache_timeout_s, metrics.count_dropped_write
        )
    except ValueError as error:
        raise WorkloadError(f"--set prompt_cache: {error}") from error
