"""How what the agent sends is sent: to whom, with what, and where it waits meanwhile."""

import hashlib
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from agent.errors import ConfigError
from agent.otlp.access import is_loopback
from agent.otlp.sender import Sender
from agent.otlp.spool import SpoolSettings
from agent.otlp.spool_folder import sweep
from agent.otlp.transport import GZIP, Target

_log = logging.getLogger(__name__)

SPANS_PIPE, METRICS_PIPE = "spans", "metrics"
SCHEMES = ("http", "https", "grpc", "grpcs")
NO_COMPRESSION = "none"
SPOOL_BYTES = 256 << 20

_SHARES = {SPANS_PIPE: 0.75, METRICS_PIPE: 0.25}
_LEAST_SPOOL_BYTES = 1 << 20
_UNUSED_S = 7 * 86_400.0
_SECURE = ("https", "grpcs")
_OURS = frozenset(
    ("content-type", "content-encoding", "content-length", "host", "x-tailcause-batch")
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")


@dataclass(frozen=True)
class Way:
    """Where a pipe leads, and where what cannot be sent waits meanwhile."""

    target: Target
    spool: SpoolSettings | None

    def sender(self) -> Sender:
        """Return a sender; raises `CannotStartError` for certificates that cannot be used."""
        return Sender(self.target, spool=self.spool)


@dataclass(frozen=True)
class Forwarding:
    """The settings of that name. `spans_url` and `metrics_url` may be empty: then nothing is sent."""

    spans_url: str = ""
    metrics_url: str = ""
    compression: str = ""
    """`gzip` or `none`; by default gzip, but not on this host."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    token_file: str = ""
    spool_dir: str = ""
    spool_bytes: int = SPOOL_BYTES

    def check(self) -> None:
        """Raise `ConfigError` for what cannot be used; values of headers are not shown."""
        if self.compression not in {"", GZIP, NO_COMPRESSION}:
            raise ConfigError("compression must be gzip or none")
        if bool(self.cert_file) != bool(self.key_file):
            raise ConfigError("forward_cert and forward_key belong together: give both")
        if self.spool_bytes and self.spool_bytes < _LEAST_SPOOL_BYTES:
            raise ConfigError(f"spool_bytes must be at least {_LEAST_SPOOL_BYTES}, or 0: no spool")
        for name, value in self.headers.items():
            _check_header(name, value)
        if self.token_file and not _may_carry_token(self._owner):
            raise ConfigError(
                "forward_token_file: a token is not sent in the clear: use https:// or grpcs://"
            )

    @property
    def _owner(self) -> str:
        """Return the address that headers, token and client certificate are for."""
        return self.spans_url or self.metrics_url

    def target(self, url: str) -> Target:
        """Return a back end; one of another origin than spans go to gets nothing that is secret."""
        compression = self.compression or (
            NO_COMPRESSION if is_loopback(urlsplit(url).hostname or "") else GZIP
        )
        if _origin(url) != _origin(self._owner):
            return Target(url, compression, ca_file=self.ca_file)
        return Target(
            url,
            compression,
            self.headers,
            self.ca_file,
            self.cert_file,
            self.key_file,
            self.token_file,
        )

    def spool(self, pipe: str, url: str) -> SpoolSettings | None:
        """Return where a pipe's spool is: one for each back end, so that none gets what was meant for another."""
        if not self.spool_bytes:
            return None
        return SpoolSettings(
            Path(self.spool_dir) / _folder(pipe, url), int(self.spool_bytes * _SHARES[pipe])
        )

    def ways(self) -> dict[str, Way]:
        """Return where each pipe leads that leads anywhere."""
        return {pipe: Way(self.target(url), self.spool(pipe, url)) for pipe, url in self._pipes}

    @property
    def _pipes(self) -> list[tuple[str, str]]:
        both = ((SPANS_PIPE, self.spans_url), (METRICS_PIPE, self.metrics_url))
        return [(pipe, url) for pipe, url in both if url]

    def sweep(self) -> None:
        """Remove what was spooled for other back ends and has not been touched for a week."""
        if not self.spool_bytes:
            return
        keep = frozenset(_folder(pipe, url) for pipe, url in self._pipes)
        for removed in sweep(Path(self.spool_dir), keep, time.time() - _UNUSED_S):
            _log.warning("event=spool_swept folder=%s why='unused for a week'", removed)


def _folder(pipe: str, url: str) -> str:
    return f"{pipe}-{hashlib.sha256(url.encode()).hexdigest()[:12]}"


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _may_carry_token(url: str) -> bool:
    parts = urlsplit(url)
    return not url or parts.scheme in _SECURE or is_loopback(parts.hostname or "")


def _check_header(name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name) or name.lower() in _OURS:
        raise ConfigError(f"headers: {name!r} cannot be set")
    if not _HEADER_VALUE.fullmatch(value):
        raise ConfigError(f"headers: the value of {name!r} must be printable ASCII, on one line")


def parse_headers(text: str) -> dict[str, str]:
    """Return headers written as `NAME=VALUE,NAME=VALUE`; raises `ConfigError`."""
    headers = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise ConfigError("headers must be written as NAME=VALUE,NAME=VALUE")
        headers[name.strip()] = value.strip()
    return headers
