"""One HTTP server on one port, and the words for it when the port cannot be had."""

import errno
import ssl

from agent.errors import CannotStartError
from agent.http.message import Routes
from agent.http.server import Server


class Listener:
    """Listens with some routes; the caller learns the port and stops it."""

    def __init__(self, routes: Routes, host: str, tls: ssl.SSLContext | None = None) -> None:
        self._server = Server(routes)
        self._host = host
        self._tls = tls

    async def start(self, port: int, flag: str) -> int:
        """Listen on a port (0: any free one) and return it; raises `CannotStartError`.

        `flag` is the option that the message tells the user to change.
        """
        try:
            return await self._server.start(self._host, port, self._tls)
        except OSError as exc:
            raise cannot_listen(exc, self._host, port, flag) from exc

    @property
    def refused(self) -> int:
        """How many connections found no room."""
        return self._server.refused

    async def stop(self) -> None:
        """Stop listening; requests at work get a second to finish."""
        await self._server.stop()


def cannot_listen(exc: OSError, host: str, port: int, flag: str) -> CannotStartError:
    """Return the error that tells the user which option to change."""
    if exc.errno == errno.EADDRINUSE:
        why = f"port {port} is in use: stop what listens there, or give {flag} (0: a free one)"
    elif exc.errno == errno.EACCES:
        why = f"port {port} needs root: give {flag} above 1023"
    else:
        why = f"cannot listen on {host}:{port}: {exc.strerror or exc}"
    return CannotStartError(why)
