"""Addresses of stores in settings: what is accepted, and that no password is."""

import pytest

from kernels.errors import WorkloadError
from kernels.workload.settings import Settings, as_text, parse


@pytest.mark.parametrize(
    ("pair", "name", "expected"),
    [
        ("prompt_cache=0", "prompt_cache", 0),
        ("prompt_cache=redis://127.0.0.1:6379/2", "prompt_cache", "redis://127.0.0.1:6379/2"),
        ("prompt_cache=unix:///run/redis.sock", "prompt_cache", "unix:///run/redis.sock"),
        ("tenant_db=", "tenant_db", ""),
        ("tenant_db=postgresql://me@db/x", "tenant_db", "postgresql://me@db/x"),
        ("tenant_db=postgres:///x?host=/run", "tenant_db", "postgres:///x?host=/run"),
    ],
)
def test_addresses_are_read_and_written_back(pair: str, name: str, expected: object) -> None:
    """What a deploy passes on is what it was given."""
    settings = parse([pair])
    assert getattr(settings, name) == expected
    assert parse([f"{key}={value}" for key, value in as_text(settings).items()]) == settings
    assert parse([]) == Settings()


@pytest.mark.parametrize(
    ("pair", "advice"),
    [
        ("tenant_db=postgresql://me:hunter2@db/x", "pgpass"),
        ("tenant_db=postgresql://db/x?password=hunter2", "pgpass"),
        ("prompt_cache=redis://:hunter2@cache", "REDISCLI_AUTH"),
        ("prompt_cache=redis://cache?PASSWORD=hunter2", "REDISCLI_AUTH"),
    ],
)
def test_passwords_are_refused_and_not_repeated(pair: str, advice: str) -> None:
    """Command lines and state files can be read by others; the message says where to put them."""
    with pytest.raises(WorkloadError, match=advice) as refusal:
        parse([pair])
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    "pair", ["tenant_db=mysql://db/x", "tenant_db=x.db", "prompt_cache=http://c", "prompt_cache=-1"]
)
def test_other_stores_are_refused(pair: str) -> None:
    """With the setting's name."""
    with pytest.raises(WorkloadError, match=pair.partition("=")[0]):
        parse([pair])
