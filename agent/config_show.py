"""The configuration in force, for people: as TOML, without what is secret."""

import hashlib
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

import msgspec

from agent.config import Config

MASK = "***"
_SECRET_TABLES = ("headers",)
_HASH_DIGITS = 12


def masked(config: Config) -> dict[str, object]:
    """Return every setting by name; values of headers and passwords in URLs are masked."""
    return {
        key: _masked(key, value)
        for key, value in msgspec.to_builtins(config, builtin_types=(tuple,)).items()
    }


def _masked(key: str, value: object) -> object:
    if key in _SECRET_TABLES and isinstance(value, Mapping):
        return dict.fromkeys(value, MASK)
    return mask_url(value) if isinstance(value, str) and "://" in value else value


def mask_url(url: str) -> str:
    """Return a URL without the user and password that may be in it."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{MASK}@{host}"))


def config_hash(config: Config) -> str:
    """Return what tells two configurations apart; secrets have no part in it."""
    encoded = msgspec.json.encode(masked(config), order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[:_HASH_DIGITS]


def toml(config: Config) -> str:
    """Return the configuration as a file that can be read back, but for what is masked."""
    default = masked(Config())
    lines = []
    for key, value in masked(config).items():
        note = "" if value == default[key] else "  # set"
        lines.append(f"{key} = {_toml(value)}{note}")
    return "\n".join(lines)


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{_toml(name)} = {_toml(one)}" for name, one in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return msgspec.json.encode(value).decode()  # strings, numbers and booleans are the same in both
