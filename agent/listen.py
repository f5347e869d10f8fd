"""One HTTP application on one port."""

import errno
import ssl

from aiohttp import web

from agent.errors import CannotStartError
from agent.otlp.receiver import runner


class Listener:
    """Listens for an application; the caller learns the port and stops it."""

    def __init__(self, app: web.Application, host: str, tls: ssl.SSLContext | None = None) -> None:
        self._runner = runner(app)
        self._host = host
        self._tls = tls

    async def start(self, port: int, flag: str) -> int:
        """Listen on a port (0: any free one) and return it; raises `CannotStartError`.

        `flag` is the option that the message tells the user to change.
        """
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, port, ssl_context=self._tls).start()
        except OSError as exc:
            await self._runner.cleanup()
            raise cannot_listen(exc, self._host, port, flag) from exc
        bound: int = self._runner.addresses[0][1]
        return bound

    async def stop(self) -> None:
        """Stop listening; requests at work get a second to finish."""
        await self._runner.cleanup()


def cannot_listen(exc: OSError, host: str, port: int, flag: str) -> CannotStartError:
    """Return the error that tells the user which option to change."""
    if exc.errno == errno.EADDRINUSE:
        why = f"port {port} is in use: stop what listens there, or give {flag} (0: a free one)"
    elif exc.errno == errno.EACCES:
        why = f"port {port} needs root: give {flag} above 1023"
    else:
        why = f"cannot listen on {host}:{port}: {exc.strerror or exc}"
    return CannotStartError(why)
