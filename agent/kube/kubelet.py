"""The kubelet's list of pods over HTTP(S): one bounded request at a time.

Source: Kubernetes, "Kubelet authentication/authorization"; "Service Accounts" for the token, which
is rotated and therefore read anew each time.
"""

import http.client
import ssl
import time
import urllib.parse
from contextlib import closing
from pathlib import Path

from agent.connection import cut_at
from agent.kube.errors import KubeletError
from agent.kube.settings import SERVICE_ACCOUNT, KubeletAccess
from agent.telemetry.model import SignalState

_CHUNK = 1 << 16
_PATH = "/pods"
_AUTHENTICATION_REMEDY = (
    "run with a service account, or give --kube-token-file; "
    "the kubelet must accept tokens (authentication.webhook.enabled)"
)
RBAC_REMEDY = (
    'let the agent\'s service account get "nodes/pods" (Kubernetes 1.33 and later) '
    'or "nodes/proxy" by a ClusterRole, or use the read-only port'
)
_AWAY_REMEDY = "is the kubelet running, and is this its address? it is asked again by itself"
_CERTIFICATE_REMEDY = (
    "give the CA that signed the kubelet's certificate with --kube-ca-file, or "
    "--kube-insecure for a kubelet that signed it itself"
)


class Kubelet:
    """Asks a kubelet for the pods of its node; every answer is bounded in time and size."""

    def __init__(self, access: KubeletAccess, deadline_s: float, max_body_bytes: int) -> None:
        self._access = access
        self._deadline_s = deadline_s
        self._max_body_bytes = max_body_bytes
        parts = urllib.parse.urlsplit(access.url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port
        self._path = parts.path.rstrip("/") or _PATH

    def pods(self) -> bytes:
        """Return the body of the answer; raises `KubeletError`."""
        end_s = time.monotonic() + self._deadline_s
        headers = {"Accept": "application/json", **self._authorization()}
        with closing(self._connection()) as connection:
            try:
                connection.connect()
                with cut_at(connection.sock, end_s):
                    connection.request("GET", self._path, headers=headers)
                    return self._read(connection.getresponse())
            except ssl.SSLCertVerificationError as exc:
                why = f"the kubelet's certificate is not trusted ({exc.verify_message})"
                raise KubeletError(why, SignalState.FAILED, _CERTIFICATE_REMEDY) from exc
            except (OSError, http.client.HTTPException) as exc:
                raise self._away(exc, late=time.monotonic() >= end_s) from exc

    def _away(self, exc: Exception, *, late: bool) -> KubeletError:
        where = f"{self._host}:{self._port or ''}".rstrip(":")
        if late or isinstance(exc, TimeoutError):
            why = f"{where} did not answer within {self._deadline_s:g} s"
            return KubeletError(why, SignalState.HUNG, _AWAY_REMEDY)
        why = f"{where} cannot be asked ({type(exc).__name__}: {exc})"
        return KubeletError(why, SignalState.FAILED, _AWAY_REMEDY)

    def _connection(self) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._deadline_s)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._deadline_s, context=self._tls()
        )

    def _tls(self) -> ssl.SSLContext:
        if self._access.insecure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            return context
        ca_file = self._access.ca_file or str(SERVICE_ACCOUNT / "ca.crt")
        try:
            return ssl.create_default_context(cafile=ca_file)
        except OSError as exc:
            raise KubeletError(
                f"the CA file {ca_file} cannot be used ({exc.strerror or exc})",
                SignalState.FAILED,
                _CERTIFICATE_REMEDY,
            ) from exc

    def _authorization(self) -> dict[str, str]:
        """Return the token's header; a token never goes over plain HTTP."""
        if not self._secure:
            return {}
        token_file = Path(self._access.token_file or SERVICE_ACCOUNT / "token")
        try:
            token = token_file.read_text(encoding="ascii").strip()
        except FileNotFoundError as exc:
            if not self._access.token_file:
                return {}  # outside a pod there is none, and some kubelets want none
            raise self._no_token(token_file, "does not exist") from exc
        except (OSError, UnicodeDecodeError) as exc:
            raise self._no_token(token_file, f"cannot be read ({exc})") from exc
        if not token or not token.isprintable():
            raise self._no_token(token_file, "holds no token")
        return {"Authorization": f"Bearer {token}"}

    def _no_token(self, token_file: Path, why: str) -> KubeletError:
        text = f"the token file {token_file} {why}"
        return KubeletError(text, SignalState.NO_PERMISSION, _AUTHENTICATION_REMEDY)

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        _check_status(response.status)
        body = bytearray()
        while chunk := response.read(_CHUNK):
            body += chunk
            if len(body) > self._max_body_bytes:
                raise KubeletError(
                    f"the list of pods is larger than {self._max_body_bytes >> 20} MiB",
                    SignalState.FAILED,
                    "is this address the kubelet's own? it lists one node's pods",
                )
        if response.length:  # what was announced did not all come
            raise http.client.IncompleteRead(bytes(body), response.length)
        return bytes(body)


def _check_status(status: int) -> None:
    if status == http.client.UNAUTHORIZED:
        why = "the kubelet does not accept the agent's token (HTTP 401)"
        raise KubeletError(why, SignalState.NO_PERMISSION, _AUTHENTICATION_REMEDY)
    if status == http.client.FORBIDDEN:
        why = "the agent may not read the kubelet's pods (HTTP 403)"
        raise KubeletError(why, SignalState.NO_PERMISSION, RBAC_REMEDY)
    if status != http.client.OK:
        raise KubeletError(f"the kubelet answers HTTP {status}", SignalState.FAILED, _AWAY_REMEDY)
