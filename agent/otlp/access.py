"""Who may send to a receiver, and under which certificate: TLS and bearer tokens.

Source: RFC 6750 (bearer tokens), OTLP specification ("UNAUTHENTICATED", 401).
"""

import hmac
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.errors import CannotStartError

_log = logging.getLogger(__name__)

REREAD_S = 5.0
_SCHEME = "bearer "


class AccessError(CannotStartError):
    """A token or certificate cannot be used; the message names the setting and the file."""


@dataclass(frozen=True)
class Tls:
    """Certificate and key of a server, in PEM; with `client_ca` its clients need a certificate too."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return them for asyncio; raises `AccessError`."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.cert, self.key)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as exc:
            raise AccessError(self._why(exc)) from exc
        return context

    def grpc_credentials(self, grpc: Any) -> Any:
        """Return them for gRPC, whose module the caller has imported; raises `AccessError`."""
        self.context()  # gRPC tells of a bad file by its log alone
        authority = self.client_ca.read_bytes() if self.client_ca is not None else None
        return grpc.ssl_server_credentials(
            [(self.key.read_bytes(), self.cert.read_bytes())],
            root_certificates=authority,
            require_client_auth=authority is not None,
        )

    def _why(self, exc: OSError) -> str:
        files = ", ".join(str(file) for file in (self.cert, self.key, self.client_ca) if file)
        return f"TLS: {exc.strerror or exc}: tls_cert, tls_key and tls_client_ca are PEM files ({files})"


class Tokens:
    """The tokens of a file, one a line, so that a new one can be added before the old one goes.

    The file is looked at again every few seconds; while it cannot be read, the tokens known so far hold.
    """

    def __init__(self, file: Path, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._monotonic_s = monotonic_s
        self._looked_s = monotonic_s()
        self._readable = True
        try:
            self._tokens = _read(file)
        except (OSError, ValueError) as exc:
            raise AccessError(f"bearer_token_file {file}: {exc}") from exc

    def admit(self, authorization: str) -> bool:
        """Tell whether the value of an Authorization header names one of the tokens."""
        self._look_again()
        if authorization[: len(_SCHEME)].lower() != _SCHEME:
            return False
        given = authorization[len(_SCHEME) :].strip().encode()
        matches = [hmac.compare_digest(given, token) for token in self._tokens]
        return any(matches)  # all are compared, so that the time tells nothing

    def _look_again(self) -> None:
        now_s = self._monotonic_s()
        if now_s - self._looked_s < REREAD_S:
            return
        self._looked_s = now_s
        try:
            self._tokens = _read(self._file)
            self._readable = True
        except (OSError, ValueError) as exc:
            if self._readable:
                _log.warning("event=bearer_tokens_unreadable file=%s why=%r", self._file, str(exc))
            self._readable = False


def _read(file: Path) -> tuple[bytes, ...]:
    lines = file.read_bytes().splitlines()
    tokens = tuple(line.strip() for line in lines if line.strip())
    if not tokens:
        raise ValueError("there is no token in it: write one a line")
    return tokens


@dataclass(frozen=True)
class Access:
    """What a receiver asks of its clients; by default nothing, because it listens on loopback alone."""

    tls: Tls | None = None
    tokens: Tokens | None = None

    def admits(self, authorization: str) -> bool:
        """Tell whether a client with this Authorization header may send."""
        return self.tokens is None or self.tokens.admit(authorization)


def access(cert: str, key: str, client_ca: str, bearer_token_file: str) -> Access:
    """Return what these settings (empty: not set) ask for; raises `AccessError`."""
    tls = Tls(Path(cert), Path(key), Path(client_ca) if client_ca else None) if cert else None
    if tls is not None:
        tls.context()  # a bad file is told before anything listens
    tokens = Tokens(Path(bearer_token_file)) if bearer_token_file else None
    return Access(tls, tokens)


def warn_if_open(host: str, granted: Access) -> None:
    """Say that what is sent can be read on the way, when the address is beyond loopback and TLS is off."""
    if granted.tls is None and not is_loopback(host):
        _log.warning(
            "event=otlp_without_tls listen=%s next='set tls_cert and tls_key, or listen on 127.0.0.1'",
            host,
        )


def is_loopback(host: str) -> bool:
    """Tell whether an address is of this machine alone."""
    return host in {"localhost", "::1"} or host.startswith("127.")
