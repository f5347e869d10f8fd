"""An HTTP client of one origin: one request at a time, over a connection that is kept."""

import asyncio
import base64
import contextlib
import ssl
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

import h11

from agent.http.connection import READ_BYTES

_EYEBALLS_S = 0.25
_ANSWER_BYTES = 1 << 16


class HttpError(Exception):
    """What came back is no answer in HTTP, or what was to be sent is no request."""


@dataclass(frozen=True)
class Answer:
    """What a server answered; of a long body the first 64 KiB. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient:
    """Posts to the paths below an address; a user and password in it become basic authentication (RFC 7617)."""

    def __init__(self, base: str, tls: ssl.SSLContext | None, timeout_s: float) -> None:
        parts = urllib.parse.urlsplit(base)
        self._host = parts.hostname or ""
        self._port = parts.port or (80 if tls is None else 443)
        self._prefix = parts.path.rstrip("/")
        self._tls = tls
        self._timeout_s = timeout_s
        self._headers = {"Host": parts.netloc.rpartition("@")[2], "User-Agent": "tailcause-agent"}
        if parts.username is not None:
            pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            basic = base64.b64encode(pair.encode()).decode()
            self._headers["Authorization"] = f"Basic {basic}"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._http = h11.Connection(h11.CLIENT)

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Post once; redirects are not followed. Raises `OSError`, `TimeoutError` and `HttpError`."""
        every = {**self._headers, **headers, "Content-Length": str(len(body))}
        kept = False
        try:
            head = h11.Request(
                method="POST",
                target=f"{self._prefix}{path}",
                headers=[(name.encode(), value.encode()) for name, value in every.items()],
            )
            async with asyncio.timeout(self._timeout_s):
                reader, writer = await self._connected()
                for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                    writer.write(
                        self._http.send(event) or b""
                    )  # not drained: it may be refused unread
                answer = await self._answer(reader)
            kept = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        except h11.ProtocolError as exc:
            raise HttpError(f"no HTTP: {exc}") from exc
        finally:
            if kept:
                self._http.start_next_cycle()
            else:
                self._drop()
        return answer

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is not None and self._streams[0].at_eof():
            self._drop()  # the server has closed it meanwhile
        if self._streams is None:
            self._http = h11.Connection(h11.CLIENT)
            self._streams = await asyncio.open_connection(
                self._host, self._port, ssl=self._tls, happy_eyeballs_delay=_EYEBALLS_S
            )
        return self._streams

    async def _answer(self, reader: asyncio.StreamReader) -> Answer:
        head, body = await self._final_head(reader), bytearray()
        while isinstance(event := await self._event(reader), h11.Data):
            body += event.data
            if len(body) > _ANSWER_BYTES:
                break
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        return Answer(head.status_code, headers, bytes(body[:_ANSWER_BYTES]))

    async def _final_head(self, reader: asyncio.StreamReader) -> h11.Response:
        while not isinstance(event := await self._event(reader), h11.Response):
            if not isinstance(event, h11.InformationalResponse):
                raise HttpError("the connection was closed without an answer")
        return event

    async def _event(self, reader: asyncio.StreamReader) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await reader.read(READ_BYTES))
        return event

    async def close(self) -> None:
        """Let the connection go."""
        streams = self._streams
        self._drop()
        if streams is not None:
            with contextlib.suppress(OSError):
                await streams[1].wait_closed()

    def _drop(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
