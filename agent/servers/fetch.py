"""One page over HTTP: a bounded answer in a bounded time, from the address that was given and no other."""

import http.client
import ssl
import time
import urllib.parse
from contextlib import closing

from agent.connection import cut_at
from agent.servers.errors import ScrapeError
from agent.telemetry.model import SignalState

_CHUNK = 1 << 16
_HEADERS = {
    "Accept": "text/plain;version=0.0.4, */*;q=0.1",
    "Accept-Encoding": "identity",
    "User-Agent": "tailcause-agent",
}
_AWAY = "is the server running, and is this its address? it is asked again by itself"
_PATH = "check the path of the page: most have /metrics, TensorRT-LLM /prometheus/metrics"
_NO_PAGE = ("application/json", "text/html")


def fetch(url: str, deadline_s: float, max_body_bytes: int) -> str:
    """Return the text of a page; raises `ScrapeError`. Redirects are not followed."""
    end_s = time.monotonic() + deadline_s
    parts = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    with closing(kind(parts.hostname or "", parts.port, timeout=deadline_s)) as connection:
        try:
            connection.connect()
            with cut_at(connection.sock, end_s):
                connection.request("GET", parts.path, headers=_HEADERS)
                response = connection.getresponse()
                _check(response, parts.netloc)
                body = _body(response, parts.netloc, max_body_bytes)
        except (OSError, http.client.HTTPException) as exc:
            late = time.monotonic() >= end_s or isinstance(exc, TimeoutError)
            raise _failed(parts.netloc, exc, deadline_s if late else None) from exc
    return body.decode(errors="replace")


def _failed(where: str, exc: Exception, late_after_s: float | None) -> ScrapeError:
    if late_after_s is not None:
        why = f"{where} did not answer within {late_after_s:g} s"
        return ScrapeError("timeout", why, SignalState.HUNG, _AWAY)
    if isinstance(exc, ssl.SSLCertVerificationError):
        why = f"the certificate of {where} is not trusted ({exc.verify_message})"
        return ScrapeError("unreachable", why, SignalState.FAILED, "add its CA to the system's")
    why = f"{where} cannot be read ({type(exc).__name__}: {exc})"
    return ScrapeError("unreachable", why, SignalState.FAILED, _AWAY)


def _check(response: http.client.HTTPResponse, where: str) -> None:
    status = response.status
    if status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
        why = f"{where} does not let the agent read its page (HTTP {status})"
        raise ScrapeError("http_error", why, SignalState.NO_PERMISSION, "open it to this host")
    if status != http.client.OK:
        target = response.getheader("Location")
        why = f"{where} answers HTTP {status}" + (f", a redirect to {target!r}" if target else "")
        raise ScrapeError("http_error", why, SignalState.FAILED, _PATH)
    encoding = response.getheader("Content-Encoding", "identity")
    kind = response.getheader("Content-Type", "").partition(";")[0].strip().lower()
    if encoding != "identity" or kind in _NO_PAGE:
        why = f"{where} answers {kind if kind in _NO_PAGE else encoding}, not a metrics page"
        raise ScrapeError("not_metrics", why, SignalState.FAILED, _PATH)


def _body(response: http.client.HTTPResponse, where: str, max_body_bytes: int) -> bytes:
    body = bytearray()
    while chunk := response.read(_CHUNK):
        body += chunk
        if len(body) > max_body_bytes:
            why = f"the page of {where} is larger than {max_body_bytes >> 20} MiB"
            raise ScrapeError("too_large", why, SignalState.FAILED, "is this a server's own page?")
    if response.length:  # what was announced did not all come
        raise http.client.IncompleteRead(bytes(body), response.length)
    return bytes(body)
