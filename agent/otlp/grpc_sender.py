"""OTLP/gRPC to a back end. gRPC is imported when a transport is made: it takes 9 MB.

Source: OTLP specification 1.x, sections "OTLP/gRPC Response" and "OTLP/gRPC Throttling".
"""

import asyncio
from typing import Any
from urllib.parse import urlsplit

from agent.otlp.batch import BATCH_HEADER, Batch
from agent.otlp.codec import Signal
from agent.otlp.grpc_receiver import SERVICES, load_grpc
from agent.otlp.http_sender import rejected
from agent.otlp.retry import RETRYABLE_CODES, THROTTLE_CODE, Retry, retry_info_s
from agent.otlp.tls import grpc_channel_credentials
from agent.otlp.transport import GZIP, Delivered, Outcome, Refused, Target, TokenFile

_DEFAULT_PORT = 4317
_STATUS_TRAILER = "grpc-status-details-bin"
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),  # nothing is called that was not given
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_reconnect_backoff_ms", 5_000),  # the sender has its own back-off on top
)


class GrpcTransport:
    """One channel, made at the first attempt."""

    def __init__(self, target: Target, timeout_s: float, retry_after_max_s: float) -> None:
        self._target = target
        self._timeout_s = timeout_s
        self._retry_after_max_s = retry_after_max_s
        self._token = TokenFile(target.token_file)
        self._grpc = load_grpc()
        secure = target.endpoint.startswith("grpcs:")
        self._credentials = grpc_channel_credentials(target, self._grpc) if secure else None
        self._channel: Any = None
        self._calls: dict[Signal, Any] = {}

    async def attempt(self, batch: Batch) -> Outcome:
        """Call Export once."""
        if self._channel is None:
            self._open()
        try:
            answer = await self._calls[batch.signal](
                batch.body, timeout=self._timeout_s, metadata=self._metadata(batch)
            )
        except self._grpc.aio.AioRpcError as exc:
            return self._failed(exc)
        except asyncio.CancelledError:
            raise
        return Delivered(min(rejected(batch.signal, answer), batch.items))

    def _open(self) -> None:
        grpc = self._grpc
        gzip = self._target.compression == GZIP
        compression = grpc.Compression.Gzip if gzip else grpc.Compression.NoCompression
        given = {"options": _OPTIONS, "compression": compression}
        address = address_of(self._target.endpoint)
        if self._credentials is None:
            self._channel = grpc.aio.insecure_channel(address, **given)
        else:
            self._channel = grpc.aio.secure_channel(address, self._credentials, **given)
        self._calls = {
            signal: self._channel.unary_unary(f"/{service}/Export")
            for signal, service in SERVICES.items()
        }

    def _metadata(self, batch: Batch) -> tuple[tuple[str, str], ...]:
        pairs = {key.lower(): value for key, value in self._target.headers.items()}
        pairs[BATCH_HEADER.lower()] = batch.batch_id.hex()
        if authorization := self._token.authorization():
            pairs["authorization"] = authorization
        return tuple(pairs.items())

    def _failed(self, exc: Any) -> Outcome:
        name: str = exc.code().name
        after_s = _retry_info(exc, self._retry_after_max_s)
        if name in RETRYABLE_CODES or (name == THROTTLE_CODE and after_s is not None):
            return Retry(f"gRPC {name}: {exc.details()}", after_s)
        return Refused(f"gRPC {name}: {exc.details()}")

    async def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None


def address_of(endpoint: str) -> str:
    """Return host:port of grpc://host or grpc://host:port."""
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    return (
        f"[{host}]:{parts.port or _DEFAULT_PORT}"
        if ":" in host
        else f"{host}:{parts.port or _DEFAULT_PORT}"
    )


def _retry_info(exc: Any, max_s: float) -> float | None:
    for key, value in exc.trailing_metadata() or ():
        if key == _STATUS_TRAILER:
            return retry_info_s(value, max_s)
    return None
