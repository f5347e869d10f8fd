"""Faults of the stores behind a real server: a real PostgreSQL that is locked, a real Redis that stands still."""

import signal
from collections.abc import Iterator

import pytest

from tests.support.live_workload import (
    eventually,
    fault,
    live,
    load,
    needs_cgroups,
    stop_well,
    workload,
)
from tests.support.postgres_server import Postgres, postgres
from tests.support.redis_server import RedisServer, redis_server
from tests.support.store_programs import INITDB, POSTGRES, REDIS
from tests.support.workload_calls import SMALL, metric, state_of

needs_postgres = pytest.mark.skipif(
    INITDB is None or POSTGRES is None, reason="needs PostgreSQL (postgresql)"
)
needs_redis = pytest.mark.skipif(REDIS is None, reason="needs Redis (redis-server)")

pytestmark = [pytest.mark.privileged, needs_cgroups]


@pytest.fixture
def database() -> Iterator[Postgres]:
    """Start a PostgreSQL."""
    with postgres() as started:
        yield started


@pytest.fixture
def cache() -> Iterator[RedisServer]:
    """Start a Redis."""
    with redis_server() as started:
        yield started


def longest_wait_s(database: Postgres) -> float:
    """Read from PostgreSQL how long somebody has waited for a lock so far."""
    query = """
    SELECT coalesce(max(extract(epoch FROM now() - query_start)), 0) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND query LIKE '%tenants%'
    """
    with database.connect() as own:
        row = own.execute(query).fetchone()
    return float(str(row[0])) if row else 0.0


@needs_postgres
def test_look_ups_wait_for_the_lock_until_it_is_gone(database: Postgres) -> None:
    """PostgreSQL itself says that they wait; after kill -9 of the injector nobody does."""
    setting = ("--set", f"tenant_db={database.url}")
    with workload(*SMALL, *setting) as up, load(up.url, rate=10):
        assert longest_wait_s(database) == 0

        with live(fault(up, "slow-sql", "--intensity", "6")) as injected:
            assert injected.first["target"].endswith(".tenants")
            assert eventually(lambda: longest_wait_s(database) > 0.1)

            injected.stop(signal.SIGKILL)

            assert eventually(lambda: locks(database) == 0)


def locks(database: Postgres) -> int:
    """Count the exclusive locks on the tenants' tables."""
    query = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND relation::regclass::text LIKE '%tenants'"
    with database.connect() as own:
        row = own.execute(query).fetchone()
    return int(str(row[0])) if row else 0


@needs_redis
def test_redis_stands_still_and_goes_on(cache: RedisServer) -> None:
    """The kernel says stopped, the server finds it out and serves without; afterwards it is asked again."""
    setting = ("--set", f"prompt_cache={cache.url}")
    with workload(*SMALL, *setting) as up, load(up.url, rate=10):
        assert cache.store.process is not None
        pid = cache.store.process.pid

        with live(fault(up, "cache-outage")) as injected:
            assert injected.first["parameters"]["pid"] == pid
            assert state_of(pid) == "T"
            before = metric(up.url, "vllm:e2e_request_latency_seconds_count")
            assert eventually(
                lambda: metric(up.url, "vllm:e2e_request_latency_seconds_count") > before + 5
            )
            stop_well(injected)

        assert state_of(pid) != "T"
