"""Servers that the tests of this folder share; one that a test stops it starts again."""

from collections.abc import Iterator

import pytest

from tests.support.postgres_server import Postgres, postgres
from tests.support.redis_server import RedisServer, redis_server
from tests.support.store_programs import POSTGRES, REDIS


@pytest.fixture(scope="package")
def database() -> Iterator[Postgres]:
    """Serve a PostgreSQL."""
    if POSTGRES is None:
        pytest.skip("needs PostgreSQL (apt-get install postgresql)")
    with postgres() as server:
        yield server


@pytest.fixture(scope="package")
def redis() -> Iterator[RedisServer]:
    """Serve a Redis."""
    if REDIS is None:
        pytest.skip("needs Redis (apt-get install redis-server)")
    with redis_server() as server:
        yield server
