"""Which headers go through a proxy, and which it adds."""

import re
import uuid

from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

REQUEST_ID = "X-Request-Id"
SERVED_BY = "X-Served-By"

_HOP_BY_HOP = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
        "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
"""Those of one connection, RFC 9110 section 7.6.1; what `Connection` names comes on top."""

_SANE_ID = re.compile(r"[\x21-\x7e]{1,128}")


def request_id(request: web.Request) -> str:
    """Take the caller's id where it can be passed on and logged, else make one."""
    given = request.headers.get(REQUEST_ID, "")
    return given if _SANE_ID.fullmatch(given) else uuid.uuid4().hex


def for_replica(request: web.Request, identifier: str) -> CIMultiDict[str]:
    """Give the headers of the forwarded request: trace context and all, with the id and the client's address."""
    passed = _end_to_end(request.headers)
    for name in ("Host", "Content-Length", "Expect"):  # the next connection's own
        passed.popall(name, None)
    passed[REQUEST_ID] = identifier
    known = ", ".join(passed.popall("X-Forwarded-For", []))
    passed["X-Forwarded-For"] = ", ".join(filter(None, (known, request.remote or "")))
    return passed


def for_client(
    headers: "CIMultiDictProxy[str]", identifier: str, instance: str
) -> CIMultiDict[str]:
    """Give the headers of the answer, with who gave it."""
    passed = _end_to_end(headers)
    passed[REQUEST_ID] = identifier
    passed[SERVED_BY] = instance
    return passed


def _end_to_end(headers: "CIMultiDictProxy[str]") -> CIMultiDict[str]:
    named = {
        word.strip().lower()
        for line in headers.getall("Connection", [])
        for word in line.split(",")
    }
    dropped = _HOP_BY_HOP | named
    return CIMultiDict((k, v) for k, v in headers.items() if k.lower() not in dropped)
