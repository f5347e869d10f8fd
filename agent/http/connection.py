"""One client of a server: its requests one after the other, each in bounded time and memory."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

import h11

from agent.http.message import BodyError, Request, Response, Routes, plain, route

_log = logging.getLogger(__name__)

READ_BYTES = 1 << 16
_HEAD_BYTES = 16 << 10
_LINGER_S = 1.0


@dataclass(frozen=True)
class HttpLimits:
    """What clients may ask of a server; the time in which a body comes is its handler's affair.

    `idle_s` is between two requests and before the first one, `head_s` from the first byte of one to the end of
    its head, `write_s` for an answer to be taken.
    """

    connections: int = 1000
    idle_s: float = 75.0
    head_s: float = 10.0
    write_s: float = 30.0


async def linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take in for a moment what is still on its way: closing on unread bytes resets, and the answer would be lost."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            if writer.can_write_eof():
                writer.write_eof()
            while await reader.read(READ_BYTES):
                pass


class Connection:
    """Serves one client until either side has had enough."""

    def __init__(
        self,
        routes: Routes,
        limits: HttpLimits,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._routes, self._limits = routes, limits
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self._last = False
        self.busy = False
        """Whether a request is being answered."""

    async def run(self) -> None:
        """Serve, and close the connection."""
        try:
            while await self._serve_one():
                self._http.start_next_cycle()
            self._writer.close()
            async with asyncio.timeout(self._limits.write_s):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            return  # the client is gone, or takes nothing any more
        finally:
            self._writer.transport.abort()  # nothing, where it is closed

    def make_last(self) -> None:
        """Close after the request that is being answered."""
        self._last = True

    async def _serve_one(self) -> bool:
        """Answer one request; tell whether there may be another."""
        try:
            head = await self._head()
        except h11.RemoteProtocolError as exc:
            await self._refuse(exc.error_status_hint)
            return False
        except TimeoutError:
            if self._http.trailing_data[0]:
                await self._refuse(408)
            return False
        if head is None:
            return False
        self.busy = True
        method = head.method.decode("ascii")
        response = await self._answer(method, head)
        response.close = response.close or self._last
        await self._send(response, with_body=method != "HEAD")
        self.busy = False
        return await self._finish(response)

    async def _head(self) -> h11.Request | None:
        """Return the head of the next request; None when the client has closed."""
        loop = asyncio.get_running_loop()
        begun = bool(self._http.trailing_data[0])
        wait_s = self._limits.head_s if begun else self._limits.idle_s
        async with asyncio.timeout(wait_s) as deadline:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data = await self._reader.read(READ_BYTES)
                if not begun:  # from here on it is the head that takes time
                    begun = True
                    deadline.reschedule(loop.time() + self._limits.head_s)
                self._http.receive_data(data)
        return event if isinstance(event, h11.Request) else None

    async def _answer(self, method: str, head: h11.Request) -> Response:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        request = Request(method, head.target.decode("latin-1"), headers, self._body())
        try:
            return await route(self._routes, method, request.path)(request)
        except BodyError:
            return plain(400, close=True)
        except Exception:  # noqa: BLE001  boundary: a fault of ours is answered, and costs nobody else
            _log.exception("event=http_request_failed path=%r", request.path)
            return plain(500, close=True)

    async def _body(self) -> AsyncIterator[bytes]:
        try:
            while isinstance(event := await self._event(), h11.Data):
                yield bytes(event.data)
        except (h11.RemoteProtocolError, OSError) as exc:
            raise BodyError(str(exc)) from exc

    async def _event(self) -> object:
        if self._http.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[])
            self._writer.write(self._http.send(go_on) or b"")
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(READ_BYTES))
        return event

    async def _refuse(self, status: int) -> None:
        """Answer what is no request, and let the client read it."""
        await self._send(plain(status, close=True), with_body=True)
        await linger(self._reader, self._writer)

    async def _send(self, response: Response, *, with_body: bool) -> None:
        send, write = self._http.send, self._writer.write
        write(send(h11.Response(status_code=response.status, headers=response.head())) or b"")
        if with_body:
            write(send(h11.Data(data=response.body)) or b"")
        write(send(h11.EndOfMessage()) or b"")
        async with asyncio.timeout(self._limits.write_s):
            await self._writer.drain()

    async def _finish(self, response: Response) -> bool:
        """Get the rest of a body out of the way; tell whether the connection can go on."""
        if not response.close and self._http.their_state is h11.SEND_BODY:
            with contextlib.suppress(TimeoutError, h11.RemoteProtocolError):
                async with asyncio.timeout(_LINGER_S):
                    while isinstance(await self._event(), h11.Data):
                        pass
        if (self._http.our_state, self._http.their_state) == (h11.DONE, h11.DONE):
            return True
        await linger(self._reader, self._writer)
        return False
