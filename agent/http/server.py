"""An HTTP server on one address."""

import asyncio
import socket
import ssl
from typing import Any, cast

from agent.http.connection import Connection, HttpLimits, linger
from agent.http.message import Routes

_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
_HANDSHAKE_S = 10.0
_DRAIN_S = 1.0


class Server:
    """Listens and answers by its routes."""

    def __init__(self, routes: Routes, limits: HttpLimits | None = None) -> None:
        self._routes = routes
        self._limits = limits or HttpLimits()
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], Connection] = {}
        self.refused = 0
        """How many connections found no room."""

    async def start(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        *,
        listener: socket.socket | None = None,
    ) -> int:
        """Listen on a port (0: any free one) or on a bound socket; return the port. Raises `OSError`."""
        secured: dict[str, Any] = {}
        if tls is not None:
            bounds = {"ssl_handshake_timeout": _HANDSHAKE_S, "ssl_shutdown_timeout": _DRAIN_S}
            secured = {"ssl": tls, **bounds}
        where = {"host": host, "port": port} if listener is None else {"sock": listener}
        self._server = await asyncio.start_server(self.serve, **where, **secured)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it or the server ends."""
        if len(self._connections) >= self._limits.connections:
            self.refused += 1
            writer.write(_REFUSAL)
            await linger(reader, writer)
            writer.close()
            return
        task = cast("asyncio.Task[None]", asyncio.current_task())
        connection = Connection(self._routes, self._limits, reader, writer)
        self._connections[task] = connection
        try:
            await connection.run()
        except asyncio.CancelledError:
            return  # by `stop`, or because the loop ends: nobody waits for it
        finally:
            del self._connections[task]

    async def stop(self) -> None:
        """Stop listening; requests at work get a second to finish."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        busy = []
        for task, connection in [*self._connections.items()]:
            connection.make_last()
            if connection.busy:
                busy.append(task)
            else:
                task.cancel()
        if busy:
            await asyncio.wait(busy, timeout=_DRAIN_S)
        left = [*self._connections]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
