"""Where spans and points come in: OTLP over HTTP and gRPC, one admission for both."""

import logging
import socket
from contextlib import AsyncExitStack

from agent.http.server import Server
from agent.otlp.access import Access, AccessError, access, warn_if_open
from agent.otlp.admission import Accept
from agent.otlp.grpc_receiver import GrpcReceiver
from agent.otlp.receiver import Receiver
from detector.config import Config
from detector.errors import CannotStartError

_log = logging.getLogger(__name__)

GRPC_OFF = "off"
GRPC_PORT = 14317


def _granted(config: Config) -> Access:
    """Return what the intake asks of its clients; raises `CannotStartError`."""
    try:
        return access(
            config.tls_cert, config.tls_key, config.tls_client_ca, config.bearer_token_file
        )
    except AccessError as exc:
        raise CannotStartError(str(exc)) from exc


async def listen(
    stack: AsyncExitStack, config: Config, accept: Accept, listener: socket.socket
) -> dict[str, int]:
    """Serve both transports; return their ports by the names of their settings."""
    asked = _granted(config)
    warn_if_open(config.host, asked)
    receiver = Receiver(accept, access=asked)
    server = Server(receiver.routes())
    stack.push_async_callback(server.stop)
    tls = asked.tls.context() if asked.tls is not None else None
    ports = {"otlp_port": await server.start(tls=tls, listener=listener)}
    if config.otlp_grpc_port != GRPC_OFF:
        grpc = GrpcReceiver(receiver.admission, asked)
        stack.push_async_callback(grpc.stop)
        ports |= await _listen_grpc(grpc, config)
    return ports


async def _listen_grpc(grpc: GrpcReceiver, config: Config) -> dict[str, int]:
    port = int(config.otlp_grpc_port or (GRPC_PORT if config.otlp_port else 0))
    try:
        return {"otlp_grpc_port": await grpc.start(config.host, port)}
    except ModuleNotFoundError:
        _log.warning(
            "otlp over grpc is off why='grpcio is not installed' next=%r",
            "pip install 'tailcause[detector]', or --otlp-grpc-port off",
        )
        return {}
    except OSError as exc:
        raise CannotStartError(
            f"cannot listen on {config.host}:{port}: {exc.strerror or exc}; "
            "stop what uses it or choose another with --otlp-grpc-port (0: a free one, off: none)"
        ) from exc
