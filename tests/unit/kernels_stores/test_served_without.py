"""A real server before a real PostgreSQL and a real Redis that are taken away under load."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

from tests.support.otlp_collector import Collector, attributes, collecting
from tests.support.postgres_server import Postgres
from tests.support.redis_server import RedisServer
from tests.support.workload_process import Server, serving

PATIENT_S = 90.0
INDEXED = "tailcause_1_200_indexed.tenants"
LIMITS = ("sql_timeout_s=2", "cache_timeout_s=2", "sql_slow_s=0.3")


def stores(database: Postgres, redis: RedisServer) -> tuple[str, ...]:
    """Name both in settings."""
    return (f"tenant_db={database.url}", f"prompt_cache={redis.url}", *LIMITS)


async def ask(client: aiohttp.ClientSession, server: Server, prompt: str) -> int:
    """POST a completion; its status."""
    body = {"prompt": prompt, "max_tokens": 4, "user": "tenant-0001"}
    async with client.post(f"{server.url}/v1/completions", json=body) as response:
        await response.read()
        return response.status


async def metric(client: aiohttp.ClientSession, server: Server, name: str, **labels: str) -> float:
    """Sum the samples of a metric that have these labels."""
    async with client.get(f"{server.url}/metrics") as response:
        families = text_string_to_metric_families(await response.text())
    return sum(
        one.value
        for family in families
        for one in family.samples
        if one.name == name and labels.items() <= one.labels.items()
    )


async def until_up(client: aiohttp.ClientSession, server: Server, store: str, up: float) -> None:
    """Wait until the server says of a store that it is asked, or not."""
    async with asyncio.timeout(PATIENT_S):
        while await metric(client, server, "tailcause_workload_store_up", store=store) != up:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@asynccontextmanager
async def load(client: aiohttp.ClientSession, server: Server) -> AsyncIterator[list[int]]:
    """Ask one new question after the other, by two clients, and collect the statuses."""
    statuses: list[int] = []

    async def sender(number: int) -> None:
        while True:
            statuses.append(await ask(client, server, f"{number}-{len(statuses)}"))
            await asyncio.sleep(0.01)

    senders = [asyncio.create_task(sender(number)) for number in range(2)]
    try:
        yield statuses
    finally:
        for one in senders:
            one.cancel()
        ended = await asyncio.gather(*senders, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended


async def more(statuses: list[int]) -> None:
    """Wait for ten more answers."""
    before = len(statuses)
    async with asyncio.timeout(PATIENT_S):
        while len(statuses) < before + 10:  # noqa: ASYNC110 - other tasks decide
            await asyncio.sleep(0.02)


async def eventually(collector: Collector, fits: Callable[[Span], bool]) -> Span:
    """Wait for a span that fits."""
    async with asyncio.timeout(PATIENT_S):
        while True:
            for span in list(collector.spans):
                if fits(span):
                    return span
            await asyncio.sleep(0.05)


def failed(name: str, system: str) -> Callable[[Span], bool]:
    """Recognise a look-up in this store that got no answer."""

    def fits(span: Span) -> bool:
        told = attributes(list(span.attributes))
        return (
            span.name == name
            and told.get("db.system.name") == system
            and "error.type" in told
            and span.status.code == span.status.STATUS_CODE_ERROR
        )

    return fits


async def test_stores_that_die_under_load_cost_no_request(
    database: Postgres, redis: RedisServer, tmp_path: Path
) -> None:
    """Every answer is a good one; spans and metrics say what was away, and both come back by themselves."""
    async with collecting() as collector, aiohttp.ClientSession() as client:
        arguments = ("--otlp", collector.url)
        with serving(tmp_path, *stores(database, redis), arguments=arguments) as server:
            await until_up(client, server, "postgresql", 1)
            await until_up(client, server, "redis", 1)
            async with load(client, server) as statuses:
                await more(statuses)
                database.store.kill()
                redis.store.kill()
                await more(statuses)
                for store in ("postgresql", "redis"):
                    assert (
                        await metric(client, server, "tailcause_workload_store_up", store=store)
                        == 0
                    )
                    errors = "tailcause_workload_store_errors_total"
                    assert await metric(client, server, errors, store=store) >= 1
                await asyncio.to_thread(database.start)
                await asyncio.to_thread(redis.start)
                await until_up(client, server, "postgresql", 1)
                await until_up(client, server, "redis", 1)
                await more(statuses)
            assert set(statuses) == {200}
            await eventually(collector, failed("sql SELECT tenants", "postgresql"))
            await eventually(collector, failed("cache lookup", "redis"))


async def test_a_lock_is_a_slow_query_in_log_and_span(
    database: Postgres, redis: RedisServer, tmp_path: Path
) -> None:
    """The request waits for it and is answered; the log line leads to its trace."""
    async with collecting() as collector, aiohttp.ClientSession() as client:
        arguments = ("--otlp", collector.url)
        patient = (*stores(database, redis), "sql_timeout_s=60")
        with serving(tmp_path, *patient, arguments=arguments) as server:
            await until_up(client, server, "postgresql", 1)
            with database.locked(INDEXED):
                asked = asyncio.create_task(ask(client, server, "locked out"))
                await asyncio.sleep(0.6)
                assert not asked.done()
            assert await asked == 200
            span = await eventually(
                collector,
                lambda one: (
                    one.name == "sql SELECT tenants"
                    and one.end_time_unix_nano - one.start_time_unix_nano > 3e8
                ),
            )
            (line,) = [one for one in server.log_events() if one["event"] == "slow query"]
    assert line["trace_id"] == span.trace_id.hex()
    assert line["span_id"] == span.span_id.hex()
    assert "tenant-0001" not in str(line)


async def test_replicas_share_what_one_of_them_has_completed(
    database: Postgres, redis: RedisServer, tmp_path: Path
) -> None:
    """The second server has never seen the prompt and finds its completion all the same."""
    prompt = f"shared {tmp_path}"
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    async with aiohttp.ClientSession() as client:
        with (
            serving(folders[0], *stores(database, redis)) as one,
            serving(folders[1], *stores(database, redis)) as two,
        ):
            for server in (one, two):
                await until_up(client, server, "redis", 1)
            with Redis.from_url(redis.url) as other:
                kept = other.dbsize()
                assert await ask(client, one, prompt) == 200
                async with asyncio.timeout(PATIENT_S):
                    while other.dbsize() == kept:  # noqa: ASYNC110 - written behind the answer
                        await asyncio.sleep(0.02)
            assert await ask(client, two, prompt) == 200
            hits = "tailcause_workload_cache_hits_total"
            assert [await metric(client, server, hits) for server in (one, two)] == [0, 1]
