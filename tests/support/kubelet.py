"""A kubelet's HTTPS and HTTP endpoint for pods, as far as an agent sees it: real TLS, a real token.

Stands in for a kubelet, which cannot be had without a cluster. It runs on a thread of its own.
"""

import asyncio
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

TOKEN = "token-of-the-agent"  # noqa: S105  it opens nothing but this double


@dataclass
class Behaviour:
    """How it answers; may be changed while it runs."""

    pods: list[dict[str, object]] = field(default_factory=list)
    token: str = TOKEN
    """The token it wants; empty: none."""
    forbidden: bool = False
    status: int = 200
    body: bytes | None = None
    """What it sends in place of its pods."""
    pause_s: float = 0.0
    """Before the answer begins."""
    drip_s: float = 0.0
    """Between two bytes of the body."""
    asked: list[str] = field(default_factory=list)
    """The Authorization header of each request."""


@dataclass
class Kubelet:
    """One that runs."""

    url: str
    ca_file: Path
    behaviour: Behaviour


async def _answer(behaviour: Behaviour, request: web.Request) -> web.StreamResponse:
    said = request.headers.get("Authorization", "")
    behaviour.asked.append(said)
    await asyncio.sleep(behaviour.pause_s)
    if behaviour.token and said != f"Bearer {behaviour.token}":
        return web.Response(status=401, text="Unauthorized")
    if behaviour.forbidden:
        text = (
            "Forbidden (user=system:serviceaccount:x, verb=get, resource=nodes, subresource=proxy)"
        )
        return web.Response(status=403, text=text)
    body = behaviour.body
    if body is None:
        body = json.dumps({"kind": "PodList", "apiVersion": "v1", "items": behaviour.pods}).encode()
    response = web.StreamResponse(status=behaviour.status)
    await response.prepare(request)
    step = 1 if behaviour.drip_s else max(1, len(body))
    for at in range(0, len(body), step):
        await response.write(body[at : at + step])
        if behaviour.drip_s:
            await asyncio.sleep(behaviour.drip_s)
    return response


def certificate(folder: Path) -> tuple[Path, Path]:
    """Return a new self-signed certificate of 127.0.0.1, and its key."""
    cert, key = folder / "kubelet.crt", folder / "kubelet.key"
    if not cert.exists():
        subprocess.run(
            [
                *(
                    "openssl",
                    "req",
                    "-x509",
                    "-newkey",
                    "ec",
                    "-pkeyopt",
                    "ec_paramgen_curve:P-256",
                ),
                *("-nodes", "-days", "2", "-subj", "/CN=node-1"),
                *("-addext", "subjectAltName=IP:127.0.0.1"),
                *("-keyout", str(key), "-out", str(cert)),
            ],
            check=True,
            capture_output=True,
        )
    return cert, key


@contextmanager
def serving(
    folder: Path, behaviour: Behaviour, *, tls: bool = True, port: int = 0
) -> Iterator[Kubelet]:
    """Run one on a port of the loopback, any free one by default."""
    cert, key = certificate(folder)
    context: ssl.SSLContext | None = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="kubelet-double")
    thread.start()
    try:
        runner = asyncio.run_coroutine_threadsafe(_start(behaviour, context, port), loop).result(30)
        try:
            scheme = "https" if tls else "http"
            address = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
            yield Kubelet(address, cert, behaviour)
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


async def _start(behaviour: Behaviour, context: ssl.SSLContext | None, port: int) -> web.AppRunner:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await _answer(behaviour, request)

    app = web.Application()
    app.router.add_get("/pods", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context, reuse_address=True).start()
    return runner
