"""What the configuration says of inference servers."""

import math
import urllib.parse
from dataclasses import dataclass

from agent.errors import ConfigError
from agent.servers.registry import BY_KIND

MAX_TARGETS = 32
_SCHEMES = {"http": 80, "https": 443}
_DEFAULT_PATH = "/metrics"
_EXAMPLE = "such as vllm@http://127.0.0.1:8000/metrics"


@dataclass(frozen=True)
class Target:
    """A page to read; an empty `kind` is told by the page itself. `pod` is (namespace, name) if it is one's."""

    url: str
    kind: str = ""
    pod: tuple[str, str] | None = None

    @property
    def host(self) -> str:
        """Return the host's name or address."""
        return urllib.parse.urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """Return the port."""
        parts = urllib.parse.urlsplit(self.url)
        return parts.port or _SCHEMES[parts.scheme]


@dataclass(frozen=True)
class ServerSettings:
    """`discover` looks for servers on loopback and among the pods of this node; nothing is read without being told to."""

    targets: tuple[Target, ...] = ()
    discover: bool = False
    poll_s: float = 5.0
    deadline_s: float = 2.0
    """Of one page, from connecting to its last byte."""
    max_body_bytes: int = 8 << 20
    thresholds_s: tuple[float, ...] = ()
    """Of the shares of slow requests; empty: the usual ones."""

    def check(self) -> None:
        """Raise `ConfigError` for what cannot be meant."""
        if not all(0 < one < math.inf for one in self.thresholds_s):
            raise ConfigError("servers_slow must be seconds, such as 0.5, 2.5")


def parse_targets(texts: tuple[str, ...]) -> tuple[Target, ...]:
    """Return the targets of `KIND@URL` or `URL`; raises `ConfigError`."""
    if len(texts) > MAX_TARGETS:
        raise ConfigError(f"servers: {len(texts)} are too many, an agent reads {MAX_TARGETS}")
    return tuple(dict.fromkeys(_parsed(text) for text in texts))


def _parsed(text: str) -> Target:
    head, at, url = text.partition("@")
    kind, url = (head, url) if at and "://" not in head else ("", text)
    if kind and kind not in BY_KIND:
        raise ConfigError(f"servers: no kind {kind!r}, there are {', '.join(sorted(BY_KIND))}")
    if "@" in url:
        raise ConfigError(f"servers: an address with a user in it is not read, {_EXAMPLE}")
    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    readable = url.isascii() and url.isprintable() and " " not in url
    if not (usable and readable) or parts.query or parts.fragment:
        raise ConfigError(f"servers: {text!r} is no address of a page, {_EXAMPLE}")
    path = parts.path if parts.path.strip("/") else _path(kind)
    return Target(urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, "", "")), kind)


def _path(kind: str) -> str:
    return BY_KIND[kind].path if kind else _DEFAULT_PATH
