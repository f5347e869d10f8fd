"""A request and a response, as handlers see them."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

TEXT = "text/plain; charset=utf-8"


class BodyError(Exception):
    """A body is damaged, or its sender went away in the middle of it."""


class Request:
    """A request whose body has not been read yet; names of headers are in lower case."""

    def __init__(
        self, method: str, target: str, headers: Mapping[str, str], body: AsyncIterator[bytes]
    ) -> None:
        self.method = method
        self.path = target.partition("?")[0]
        self.headers = headers
        self.body = body
        """Its pieces as they come; raises `BodyError`."""

    @property
    def content_type(self) -> str:
        """The media type without its parameters, empty where there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def content_length(self) -> int | None:
        """The length that the sender announced; None where it announced none."""
        length = self.headers.get("content-length")
        return int(length) if length is not None else None  # h11 has looked at it


@dataclass
class Response:
    """An answer; `close` ends the connection after it."""

    status: int = 200
    body: bytes = b""
    content_type: str = TEXT
    headers: dict[str, str] = field(default_factory=dict)
    close: bool = False

    def head(self) -> list[tuple[str, str]]:
        """Return all headers."""
        own = [
            ("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())),
            ("Content-Type", self.content_type),
            ("Content-Length", str(len(self.body))),
        ]
        return [*own, *self.headers.items(), *([("Connection", "close")] if self.close else [])]


Handler = Callable[[Request], Awaitable[Response]]
Routes = Mapping[str, Mapping[str, Handler]]
"""By path and method."""


def plain(status: int, *, close: bool = False) -> Response:
    """Return an answer that says no more than its status does."""
    phrase = HTTPStatus(status).phrase
    return Response(status, f"{status}: {phrase}".encode(), close=close)


def route(routes: Routes, method: str, path: str) -> Handler:
    """Return who answers; for what nobody does, somebody who says so (404, 405)."""
    methods = routes.get(path)
    if methods is None:
        return _always(plain(404))
    known = "GET" if method == "HEAD" else method
    if known in methods:
        return methods[known]
    refusal = plain(405)
    refusal.headers["Allow"] = ", ".join(sorted(methods))
    return _always(refusal)


def _always(response: Response) -> Handler:
    async def answer(_: Request) -> Response:
        return response

    return answer
