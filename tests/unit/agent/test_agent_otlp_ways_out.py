"""HTTP and gRPC out, to receivers of our own: compression, certificates, tokens, headers, and what is tried again."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.errors import CannotStartError
from agent.http.message import Handler, Request, Response, Routes
from agent.http.server import Server
from agent.otlp.access import access
from agent.otlp.admission import Admission, Limits, Verdict
from agent.otlp.batch import Batch
from agent.otlp.codec import Message, Signal, encode_samples
from agent.otlp.grpc_receiver import GrpcReceiver
from agent.otlp.grpc_sender import GrpcTransport, address_of
from agent.otlp.http_sender import HttpTransport, gzip
from agent.otlp.receiver import Receiver
from agent.otlp.retry import Retry, retry_info_s
from agent.otlp.sender import Sender, SenderLimits
from agent.otlp.status import Code, error_details
from agent.otlp.transport import Delivered, Outcome, Refused, Target, TokenFile, Transport
from agent.telemetry.model import Sample
from tests.support.certificates import Certificates, make_certificates

SAMPLES = [Sample("process.memory.usage", 1.0, 1)]


def metrics() -> Batch:
    """Return a batch with one data point."""
    return Batch(Signal.METRICS, encode_samples(SAMPLES, {}), 1)


@dataclass
class Back:
    """A back end that listens for both protocols and answers as told."""

    verdict: Verdict = field(default_factory=Verdict)
    taken: list[Message] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    urls: dict[str, str] = field(default_factory=dict)

    async def accept(self, _: Signal, message: Message) -> Verdict:
        """Keep a request."""
        self.taken.append(message)
        return self.verdict


@contextlib.asynccontextmanager
async def back(
    certificates: Certificates | None = None, *, client_ca: bool = False, token: Path | None = None
) -> AsyncIterator[Back]:
    """Serve both protocols on free ports."""
    served = Back()
    given = certificates
    cert, key = (str(given.server), str(given.server_key)) if given else ("", "")
    ca = str(given.authority) if given and client_ca else ""
    granted = access(cert, key, ca, str(token) if token else "")
    receiver = Receiver(served.accept, access=granted)
    server = Server(_noting(served, receiver.routes()))
    http_port = await server.start(tls=granted.tls.context() if granted.tls else None)
    grpc = GrpcReceiver(receiver.admission, granted)
    grpc_port = await grpc.start("127.0.0.1", 0)
    s = "s" if given else ""
    served.urls = {
        "http": f"http{s}://127.0.0.1:{http_port}",
        "grpc": f"grpc{s}://127.0.0.1:{grpc_port}",
    }
    try:
        yield served
    finally:
        await grpc.stop()
        await server.stop()


def _noting(served: Back, routes: Routes) -> Routes:
    def noting(handler: Handler) -> Handler:
        async def note(request: Request) -> Response:
            served.headers = dict(request.headers)
            return await handler(request)

        return note

    return {
        path: {name: noting(one) for name, one in all_.items()} for path, all_ in routes.items()
    }


def transport(target: Target) -> Transport:
    """Return the way to a target."""
    if target.endpoint.startswith("grpc"):
        return GrpcTransport(target, 10.0, 300.0)
    return HttpTransport(target, 10.0, 300.0)


async def once(target: Target, batch: Batch | None = None) -> Outcome:
    """Make one attempt."""
    way = transport(target)
    try:
        return await way.attempt(batch or metrics())
    finally:
        await way.close()


both = pytest.mark.parametrize("protocol", ["http", "grpc"])


@both
@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_delivered(protocol: str, compression: str) -> None:
    """A batch arrives whole, compressed or not."""
    async with back() as served:
        outcome = await once(Target(served.urls[protocol], compression))
    assert outcome == Delivered()
    assert [message.SerializeToString() for message in served.taken] == [metrics().body]
    if protocol == "http":
        assert served.headers.get("content-encoding", "none") == compression


@both
async def test_same_batch_twice_is_taken_once(protocol: str) -> None:
    """The id travels, and our receivers know it again."""
    batch = metrics()
    async with back() as served:
        way = transport(Target(served.urls[protocol]))
        assert [await way.attempt(batch) for _ in range(2)] == [Delivered()] * 2
        assert await way.attempt(metrics()) == Delivered()
        await way.close()
    assert len(served.taken) == 2


@both
async def test_rejected_items_are_told(protocol: str) -> None:
    """A partial success is read, and bounded by what was sent."""
    async with back() as served:
        served.verdict = Verdict(rejected=5, reason="no")
        assert await once(Target(served.urls[protocol])) == Delivered(rejected=1)


@both
async def test_a_busy_back_end_says_when(protocol: str) -> None:
    """Retry-After and RetryInfo reach the sender."""
    async with back() as served:
        served.verdict = Verdict(retry_after_s=7.0, reason="busy")
        outcome = await once(Target(served.urls[protocol]))
    assert isinstance(outcome, Retry)
    assert outcome.after_s == 7.0


@both
async def test_malformed_is_refused(protocol: str) -> None:
    """What the back end can never read is not tried again."""
    async with back() as served:
        outcome = await once(Target(served.urls[protocol]), Batch(Signal.TRACES, b"\xff\xff", 1))
    assert isinstance(outcome, Refused)


@both
async def test_nobody_there_is_tried_again(protocol: str) -> None:
    """A refused connection is a back end that is away."""
    async with back() as served:
        url = served.urls[protocol]
    assert isinstance(await once(Target(url)), Retry)


async def test_grpc_too_large_is_refused() -> None:
    """RESOURCE_EXHAUSTED without RetryInfo is for good."""
    async with back() as served:
        big = Batch(Signal.TRACES, bytes(Limits().message_bytes + 1), 1)
        outcome = await once(Target(served.urls["grpc"]), big)
    assert isinstance(outcome, Refused)
    assert "RESOURCE_EXHAUSTED" in outcome.why


@both
async def test_tls_with_an_authority_of_ones_own(protocol: str, tmp_path: Path) -> None:
    """The back end is trusted by the given authority, and not without it."""
    certificates = make_certificates(tmp_path)
    async with back(certificates) as served:
        trusted = await once(Target(served.urls[protocol], ca_file=str(certificates.authority)))
        untrusted = await once(Target(served.urls[protocol]))
    assert trusted == Delivered()
    assert isinstance(untrusted, Retry)
    assert len(served.taken) == 1


@both
async def test_client_certificate(protocol: str, tmp_path: Path) -> None:
    """A back end that asks for a certificate gets it."""
    given = make_certificates(tmp_path)
    async with back(given, client_ca=True) as served:
        url, ca = served.urls[protocol], str(given.authority)
        shown = Target(url, ca_file=ca, cert_file=str(given.client), key_file=str(given.client_key))
        assert await once(shown) == Delivered()
        assert isinstance(await once(Target(url, ca_file=ca)), Retry)


@both
async def test_bearer_token(protocol: str, tmp_path: Path) -> None:
    """The token of the file opens the back end; none is refused."""
    file = tmp_path / "token"
    file.write_text("secret\n")
    async with back(token=file) as served:
        assert await once(Target(served.urls[protocol], token_file=str(file))) == Delivered()
        refused = await once(Target(served.urls[protocol]))
    assert isinstance(refused, Refused)


def test_token_is_read_again(tmp_path: Path) -> None:
    """A rotated token is used after a while, and the last one holds while the file is away."""
    now_s = 0.0
    file = tmp_path / "token"
    file.write_text("one")
    token = TokenFile(str(file), lambda: now_s)
    assert token.authorization() == "Bearer one"
    file.write_text("two")
    assert token.authorization() == "Bearer one"
    now_s = 6.0
    assert token.authorization() == "Bearer two"
    file.unlink()
    now_s = 12.0
    assert token.authorization() == "Bearer two"


@pytest.mark.parametrize("text", [None, "", "two\nlines"])
def test_a_token_that_is_none_is_told_at_the_start(tmp_path: Path, text: str | None) -> None:
    """Without its token everything would be refused, and lost."""
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    with pytest.raises(CannotStartError, match="forward_token_file"):
        TokenFile(str(file))


async def test_grpc_back_end_that_starts_late_gets_everything() -> None:
    """A channel that failed connects again by itself."""
    served = Back()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    sender = Sender(f"grpc://127.0.0.1:{port}", SenderLimits(backoff_max_s=0.1))
    running = asyncio.create_task(sender.run())
    sender.offer(Signal.METRICS, metrics().body, 1)
    async with asyncio.timeout(60):
        while not sender.stats.retries:  # noqa: ASYNC110  the sender makes it true
            await asyncio.sleep(0.01)
        receiver = GrpcReceiver(Admission(served.accept))
        await receiver.start("127.0.0.1", port)
        while not sender.stats.sent:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await sender.close()
        await running
        await receiver.stop()
    assert len(served.taken) == 1
    assert not sender.stats.losses


async def test_headers_are_sent_and_never_shown() -> None:
    """Headers of the user arrive; the representation of a target does not have them."""
    async with back() as served:
        target = Target(served.urls["http"], headers={"X-Scope-OrgID": "tenant-7"})
        assert await once(target) == Delivered()
    assert served.headers["x-scope-orgid"] == "tenant-7"
    assert "tenant-7" not in repr(target)


@pytest.mark.parametrize("scheme", ["https", "grpcs"])
def test_a_bad_certificate_is_told_at_the_start(scheme: str, tmp_path: Path) -> None:
    """A file that is no certificate stops the start, with the names of the settings."""
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    with pytest.raises(CannotStartError, match="forward_ca"):
        transport(Target(f"{scheme}://127.0.0.1:1", ca_file=str(file)))


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("grpc://node", "node:4317"),
        ("grpcs://node:99", "node:99"),
        ("grpc://[::1]:5", "[::1]:5"),
        ("grpc://[::1]", "[::1]:4317"),
    ],
)
def test_addresses(url: str, address: str) -> None:
    """The port is OTLP's where none is given."""
    assert address_of(url) == address


@pytest.mark.parametrize("delay_s", [0.0, 0.25, 3.0, 300.0])
def test_retry_info_is_read(delay_s: float) -> None:
    """What our receiver writes is read back, bounded."""
    status = error_details(Code.UNAVAILABLE, "busy", delay_s)
    assert retry_info_s(status, 200.0) == min(delay_s, 200.0)


@pytest.mark.parametrize(
    "status",
    [
        b"",
        b"\xff" * 20,
        error_details(Code.UNAVAILABLE, "busy", None),
        error_details(Code.UNAVAILABLE, "busy", 3.0)[:-1],
        error_details(Code.UNAVAILABLE, "busy", 3.0).replace(b"RetryInfo", b"DebugInfo"),
    ],
)
def test_no_retry_info(status: bytes) -> None:
    """A status without it, of another kind, or damaged says nothing."""
    assert retry_info_s(status, 200.0) is None


async def test_large_bodies_are_compressed_beside_the_loop() -> None:
    """While a large body is compressed, the loop goes on."""
    turns = 0
    task = asyncio.create_task(gzip(bytes(8 << 20)))
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 3
    assert len(await task) < 1 << 20
