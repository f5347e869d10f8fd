"""What a way to the back end is, and what comes back from it."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agent.errors import CannotStartError
from agent.otlp.batch import Batch
from agent.otlp.retry import Retry

_log = logging.getLogger(__name__)

GZIP = "gzip"
_REREAD_S = 5.0


@dataclass(frozen=True)
class Delivered:
    """The back end has answered for good: it took the batch but for the rejected items."""

    rejected: int = 0


@dataclass(frozen=True)
class Refused:
    """The back end will never take the batch."""

    why: str


Outcome = Delivered | Refused | Retry


class Transport(Protocol):
    """Makes one attempt at a time."""

    async def attempt(self, batch: Batch) -> Outcome:
        """Send a batch and return what became of it; never raises for what the back end does."""

    async def close(self) -> None:
        """Let connections go."""


@dataclass(frozen=True)
class Target:
    """A back end and how to talk to it; files are PEM, empty paths are not set.

    `endpoint` is http://, https://, grpc:// or grpcs://. Header values and the token are secrets: they
    are not part of the representation.
    """

    endpoint: str
    compression: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    token_file: str = ""


class TokenFile:
    """A bearer token that is read again every few seconds, because tokens are rotated.

    While the file cannot be read, the last token holds; one that cannot be read at the start raises
    `CannotStartError`.
    """

    def __init__(self, file: str, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._monotonic_s = monotonic_s
        self._readable = True
        self._read_s = monotonic_s()
        try:
            self._token = self._read() if file else ""
        except (OSError, ValueError) as exc:
            raise CannotStartError(f"forward_token_file {file}: {exc}") from exc

    def authorization(self) -> str:
        """Return the value of the header, empty where there is no token."""
        now_s = self._monotonic_s()
        if self._file and now_s - self._read_s >= _REREAD_S:
            self._read_s = now_s
            try:
                self._token = self._read()
                self._readable = True
            except (OSError, ValueError) as exc:
                self._say_unreadable(exc)
        return f"Bearer {self._token}" if self._token else ""

    def _read(self) -> str:
        token = Path(self._file).read_text(encoding="ascii").strip()
        if not token or not token.isprintable():
            raise ValueError("there is no token in it: write one, on one line")
        return token

    def _say_unreadable(self, exc: Exception) -> None:
        if self._readable:
            _log.warning("event=token_unreadable file=%s why=%r", self._file, str(exc))
        self._readable = False
