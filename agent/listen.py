"""One HTTP application on one port."""

import errno

from aiohttp import web

from agent.errors import CannotStartError
from agent.otlp.receiver import runner


class Listener:
    """Listens for an application; the caller learns the port and stops it."""

    def __init__(self, app: web.Application, host: str) -> None:
        self._runner = runner(app)
        self._host = host

    async def start(self, port: int, flag: str) -> int:
        """Listen on a port (0: any free one) and return it; raises `CannotStartError`.

        `flag` is the option that the message tells the user to change.
        """
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, port).start()
        except OSError as exc:
            await self._runner.cleanup()
            raise CannotStartError(self._why(exc, port, flag)) from exc
        bound: int = self._runner.addresses[0][1]
        return bound

    def _why(self, exc: OSError, port: int, flag: str) -> str:
        if exc.errno == errno.EADDRINUSE:
            return f"port {port} is in use: stop what listens there, or give {flag} (0: a free one)"
        if exc.errno == errno.EACCES:
            return f"port {port} needs root: give {flag} above 1023"
        return f"cannot listen on {self._host}:{port}: {exc.strerror or exc}"

    async def stop(self) -> None:
        """Stop listening; requests at work get a second to finish."""
        await self._runner.cleanup()
