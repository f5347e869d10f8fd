"""TLS and bearer tokens, for both transports, over real sockets."""

import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest

from agent.errors import CannotStartError
from agent.http.server import Server
from agent.otlp.access import REREAD_S, Access, Tls, Tokens, access, is_loopback, warn_if_open
from agent.otlp.admission import Verdict
from agent.otlp.codec import JSON, Message, Signal
from agent.otlp.grpc_receiver import SERVICES, GrpcReceiver
from agent.otlp.receiver import Receiver
from agent.otlp.status import Code
from tests.support.certificates import Certificates, make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Return the certificates of this module."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """Return a file with two tokens."""
    file = tmp_path / "tokens"
    file.write_text("first\nsecond\n")
    return file


@dataclass
class Served:
    """Where both receivers listen."""

    http: int
    grpc: int


@contextlib.asynccontextmanager
async def serving(granted: Access) -> AsyncIterator[Served]:
    """Serve both transports on free ports."""

    async def accept(_: Signal, __: Message) -> Verdict:
        return Verdict()

    receiver = Receiver(accept, access=granted)
    server = Server(receiver.routes())
    tls = granted.tls.context() if granted.tls else None
    http_port = await server.start(tls=tls)
    other = GrpcReceiver(receiver.admission, granted)
    port = await other.start("127.0.0.1", 0)
    try:
        yield Served(http_port, port)
    finally:
        await other.stop()
        await server.stop()


async def post(url: str, token: str = "", context: ssl.SSLContext | None = None) -> Any:
    """POST an empty request; return status, headers and body."""
    headers = {"Content-Type": JSON} | ({"Authorization": token} if token else {})
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"{url}/v1/traces", data=b"{}", headers=headers, ssl=context or True
        ) as answer,
    ):
        return answer.status, answer.headers, await answer.read()


async def export(channel: grpc.aio.Channel, token: str = "") -> grpc.StatusCode:
    """Export an empty request and return the code."""
    call = channel.unary_unary(f"/{SERVICES[Signal.TRACES]}/Export")
    metadata = (("authorization", token),) if token else ()
    try:
        await call(b"", metadata=metadata, timeout=30)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize(
    "token", ["", "Bearer wrong", "Bearer ", "Basic first", "first", "Bearer firs"]
)
async def test_a_wrong_token_is_refused(token_file: Path, token: str) -> None:
    """It is a 401 that names the scheme, and UNAUTHENTICATED, each with a status body."""
    async with serving(Access(tokens=Tokens(token_file))) as served:
        status, headers, body = await post(f"http://127.0.0.1:{served.http}", token)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc}") as channel:
            code = await export(channel, token)
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert json.loads(body)["code"] == Code.UNAUTHENTICATED
    assert code is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("token", ["Bearer first", "bearer second"])
async def test_each_token_of_the_file_is_good(token_file: Path, token: str) -> None:
    """The scheme's case does not matter."""
    async with serving(Access(tokens=Tokens(token_file))) as served:
        status, _, _ = await post(f"http://127.0.0.1:{served.http}", token)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc}") as channel:
            code = await export(channel, token)
    assert (status, code) == (200, grpc.StatusCode.OK)


def test_tokens_are_read_again(token_file: Path) -> None:
    """A new token counts soon; while the file is gone, the known ones hold."""
    now_s = 0.0
    tokens = Tokens(token_file, lambda: now_s)
    token_file.write_text("third\n")
    assert not tokens.admit("Bearer third")
    now_s += REREAD_S
    assert tokens.admit("Bearer third")
    assert not tokens.admit("Bearer first")
    token_file.unlink()
    now_s += REREAD_S
    assert tokens.admit("Bearer third")


@pytest.mark.parametrize("content", [None, "", "\n \n"])
def test_no_token_is_no_start(tmp_path: Path, content: str | None) -> None:
    """A file without tokens would lock everybody out, so it is said at the start."""
    file = tmp_path / "tokens"
    if content is not None:
        file.write_text(content)
    with pytest.raises(CannotStartError, match="bearer_token_file"):
        Tokens(file)


async def test_tls(certificates: Certificates) -> None:
    """Both transports speak TLS with the certificate, and plain text gets no answer."""
    granted = Access(Tls(certificates.server, certificates.server_key))
    context = ssl.create_default_context(cafile=str(certificates.authority))
    credentials = grpc.ssl_channel_credentials(certificates.authority.read_bytes())
    async with serving(granted) as served:
        status, _, _ = await post(f"https://127.0.0.1:{served.http}", context=context)
        with pytest.raises(aiohttp.ClientError):
            await post(f"http://127.0.0.1:{served.http}")
        async with grpc.aio.secure_channel(f"127.0.0.1:{served.grpc}", credentials) as channel:
            code = await export(channel)
    assert (status, code) == (200, grpc.StatusCode.OK)


async def test_clients_need_a_certificate_when_asked(certificates: Certificates) -> None:
    """With an authority of clients, one without a certificate is turned away at the handshake."""
    tls = Tls(certificates.server, certificates.server_key, certificates.authority)
    bare = ssl.create_default_context(cafile=str(certificates.authority))
    known = ssl.create_default_context(cafile=str(certificates.authority))
    known.load_cert_chain(certificates.client, certificates.client_key)
    root = certificates.authority.read_bytes()
    key, chain = certificates.client_key.read_bytes(), certificates.client.read_bytes()
    async with serving(Access(tls)) as served:
        status, _, _ = await post(f"https://127.0.0.1:{served.http}", context=known)
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await post(f"https://127.0.0.1:{served.http}", context=bare)
        credentials = grpc.ssl_channel_credentials(root, key, chain)
        async with grpc.aio.secure_channel(f"127.0.0.1:{served.grpc}", credentials) as channel:
            code = await export(channel)
        credentials = grpc.ssl_channel_credentials(root)
        async with grpc.aio.secure_channel(f"127.0.0.1:{served.grpc}", credentials) as channel:
            refused = await export(channel)
    assert (status, code) == (200, grpc.StatusCode.OK)
    assert refused is grpc.StatusCode.UNAVAILABLE


def test_a_bad_certificate_is_no_start(tmp_path: Path, certificates: Certificates) -> None:
    """The message names the settings and the file."""
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    with pytest.raises(CannotStartError, match=r"tls_cert.*broken\.pem"):
        Tls(broken, certificates.server_key).context()
    with pytest.raises(CannotStartError, match=r"missing\.pem"):
        Tls(certificates.server, certificates.server_key, tmp_path / "missing.pem").context()


def test_nothing_is_asked_by_default() -> None:
    """Without settings there is neither TLS nor a token."""
    granted = access("", "", "", "")
    assert granted == Access()
    assert granted.admits("")


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104  it is looked at, not bound
        ("10.0.0.1", False),
    ],
)
def test_an_open_address_is_warned_of(
    host: str, alone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Beyond loopback without TLS the log says what to do."""
    warn_if_open(host, Access())
    assert is_loopback(host) is alone
    assert ("event=otlp_without_tls" in caplog.text) is not alone
