"""OTLP/gRPC intake: the Export calls of the trace, metrics and logs services, in the caller's event loop.

gRPC is imported when a receiver starts: it takes 9 MB. Messages come as bytes, so that decoding has the same
bounds and the same answers as over HTTP. Each call is served as if it streamed its one message, which is the
same on the wire: that way a call is seen before its message is complete, and slow clients can be bounded.

Source: OTLP specification 1.x, sections "OTLP/gRPC"; gRPC core, grpc_types.h (channel arguments).
"""

import asyncio
import os
import socket
from typing import Any

from agent.otlp.access import Access
from agent.otlp.admission import BUSY_RETRY_S, Admission, Body, Refusal, too_large
from agent.otlp.batch import BATCH_HEADER
from agent.otlp.codec import PROTOBUF, Signal
from agent.otlp.status import Code, error_details, success_body

TRANSPORT = "grpc"
SERVICES = {
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
    Signal.METRICS: "opentelemetry.proto.collector.metrics.v1.MetricsService",
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
}

_STOP_S = 1.0
_SLOW_S = 1.0  # a message that has been coming for so long makes room when others wait
_MAX_CALLS = 1024
_GZIP_MAGIC = b"\x1f\x8b"  # no protobuf message begins so: there is no wire type 7
_ZLIB_MAGICS = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_STATUS_TRAILER = "grpc-status-details-bin"


def load_grpc() -> Any:
    """Import and return gRPC; raises `ModuleNotFoundError`."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what goes wrong reaches us by return
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # children of ours exec at once
    import grpc  # noqa: PLC0415  for those who listen
    import grpc.aio  # noqa: PLC0415

    return grpc


class GrpcReceiver:
    """Serves the three services; bodies go through the admission that it shares with the HTTP receiver."""

    def __init__(self, admission: Admission, access: Access | None = None) -> None:
        self._admission = admission
        self._limits = admission.limits
        self._access = access or Access()
        self._reading: dict[asyncio.Timeout, float] = {}
        self._read_slots = max(1, self._limits.buffered_bytes // self._limits.message_bytes)
        self._calls = 0
        self._freed = asyncio.Event()
        self._grpc: Any = None
        self._server: Any = None

    async def start(self, host: str, port: int) -> int:
        """Listen on a port (0: any free one) and return it.

        Raises `OSError` when it cannot listen, `ModuleNotFoundError` without gRPC, and
        `CannotStartError` for a certificate that cannot be used.
        """
        self._grpc = grpc = load_grpc()
        self._server = grpc.aio.server(
            options=(
                ("grpc.so_reuseport", 0),  # or two receivers would share a port unnoticed
                ("grpc.per_message_decompression", 0),  # gRPC's own has no bound
                ("grpc.max_receive_message_length", self._limits.message_bytes),
                ("grpc.max_concurrent_streams", 100),
                ("grpc.server_handshake_timeout_ms", int(self._limits.read_timeout_s * 1000)),
            )
        )
        self._server.add_generic_rpc_handlers(tuple(map(self._handler, Signal)))
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            bound: int = self._add_port(address)
        except RuntimeError as exc:
            raise _why(host, port) from exc
        await self._server.start()
        return bound

    def _add_port(self, address: str) -> int:
        if self._access.tls is None:
            return int(self._server.add_insecure_port(address))
        credentials = self._access.tls.grpc_credentials(self._grpc)
        return int(self._server.add_secure_port(address, credentials))

    async def stop(self) -> None:
        """Stop listening; calls at work get a second to finish."""
        if self._server is not None:
            await self._server.stop(_STOP_S)
            self._server = None

    def _handler(self, signal: Signal) -> Any:
        async def export(_: object, context: Any) -> bytes:
            try:
                answer = await self._answer(signal, context)
            except Refusal as refusal:
                self._admission.answers[TRANSPORT, refusal.code.name] += 1
                return await self._abort(context, refusal)
            self._admission.answers[TRANSPORT, "OK"] += 1
            return answer

        method = self._grpc.stream_unary_rpc_method_handler(export)
        return self._grpc.method_handlers_generic_handler(SERVICES[signal], {"Export": method})

    async def _abort(self, context: Any, refusal: Refusal) -> bytes:
        details = error_details(refusal.code, refusal.text, refusal.retry_after_s)
        code = next(one for one in self._grpc.StatusCode if one.value[0] == refusal.code)
        await context.abort(code, refusal.text, ((_STATUS_TRAILER, details),))
        return b""  # `abort` raises

    async def _answer(self, signal: Signal, context: Any) -> bytes:
        if not self._access.admits(_metadata(context, "authorization")):
            raise Refusal(401, Code.UNAUTHENTICATED, "send authorization: Bearer and a valid token")
        if self._calls >= _MAX_CALLS:
            raise Refusal(429, Code.RESOURCE_EXHAUSTED, "too many requests", BUSY_RETRY_S)
        self._calls += 1
        try:
            raw = await self._read(context)
        finally:
            self._calls -= 1
        if raw.startswith(_ZLIB_MAGICS):
            raise Refusal(400, Code.INVALID_ARGUMENT, "send gzip compression or none")
        encoding = "gzip" if raw.startswith(_GZIP_MAGIC) else ""
        verdict = await self._admission.take(
            signal, Body(raw, encoding, PROTOBUF, _metadata(context, BATCH_HEADER))
        )
        return success_body(signal, verdict.rejected, verdict.reason, PROTOBUF)

    async def _read(self, context: Any) -> bytes:
        """Return the one message of a call."""
        await self._wait_for_slot()
        eof = self._grpc.aio.EOF
        patience = asyncio.timeout(self._limits.read_timeout_s)
        try:
            async with patience:
                self._reading[patience] = asyncio.get_running_loop().time()
                raw = await context.read()
                more = eof if raw is eof else await context.read()
        except TimeoutError:
            if patience not in self._reading:
                text = "too much is being sent at once"
                raise Refusal(503, Code.UNAVAILABLE, text, BUSY_RETRY_S) from None
            raise Refusal(408, Code.DEADLINE_EXCEEDED, "the message came too slowly") from None
        finally:
            self._reading.pop(patience, None)
            self._freed.set()
        if raw is eof:  # gRPC has refused it by itself
            raise too_large(self._limits.message_bytes)
        if more is not eof:
            raise Refusal(400, Code.INVALID_ARGUMENT, "send one message")
        return bytes(raw)

    async def _wait_for_slot(self) -> None:
        """Wait until a message may be read; the one that has been coming longest makes room if it is slow."""
        loop = asyncio.get_running_loop()
        while len(self._reading) >= self._read_slots:
            oldest, since_s = next(iter(self._reading.items()))
            left_s = since_s + _SLOW_S - loop.time()
            if left_s <= 0:
                del self._reading[oldest]
                oldest.reschedule(loop.time())
                return
            self._freed.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._freed.wait()
            except TimeoutError:
                continue


def _metadata(context: Any, name: str) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == name.lower():
            return str(value)
    return ""


def _why(host: str, port: int) -> OSError:
    """Return why gRPC cannot listen, which it does not tell."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as exc:
            return exc
    return OSError(f"gRPC cannot listen on {host}:{port}")
