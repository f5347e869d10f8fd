"""Reading the addresses of stores from settings, which every process of the machine can see."""

from collections.abc import Collection
from typing import NewType
from urllib.parse import parse_qsl, urlsplit

POSTGRES = ("postgresql", "postgres")
REDIS = ("redis", "rediss", "unix")

PostgresUrl = NewType("PostgresUrl", str)
NO_DATABASE = PostgresUrl("")


def postgres_url(text: str) -> PostgresUrl:
    """Accept a PostgreSQL URL, or nothing. Raises ValueError."""
    return PostgresUrl(_url(text, POSTGRES)) if text else NO_DATABASE


def cache_place(text: str) -> int | str:
    """Accept how many completions to keep in memory, or a Redis URL. Raises ValueError."""
    return _url(text, REDIS) if "://" in text else int(text)


def _url(text: str, schemes: Collection[str]) -> str:
    """Refuse other schemes, and passwords: command lines and `workload.json` can be read by others."""
    parts = urlsplit(text)
    words = {name.lower() for name, _ in parse_qsl(parts.query)}
    if parts.scheme not in schemes or parts.password is not None or "password" in words:
        raise ValueError(text)
    return text
