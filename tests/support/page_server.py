"""A real HTTP server with one metrics page, as an inference server has it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures" / "servers"


def recorded(name: str) -> str:
    """Return a page of the fixtures."""
    return (FIXTURES / f"{name}.txt").read_text()


@dataclass
class Behaviour:
    """How it answers; may be changed while it runs."""

    page: str = ""
    path: str = "/metrics"
    """Elsewhere it answers 404."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/plain"})
    missing_bytes: int = 0
    """How much of the announced body does not come."""
    drip_s: float = 0.0
    """Between two bytes."""
    hold: threading.Event = field(default_factory=threading.Event)
    """While it is clear and `holds`, nothing is answered."""
    holds: bool = False
    asked: list[str] = field(default_factory=list)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behaviour: Behaviour, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Answer)
        self.behaviour = behaviour


class _Answer(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        """Answer as told."""
        behaviour = self.server.behaviour
        behaviour.asked.append(self.path)
        if behaviour.holds:
            behaviour.hold.wait(60)
        body = behaviour.page.encode()
        self.send_response(behaviour.status if self.path == behaviour.path else 404)
        for name, value in behaviour.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self._send(body[: len(body) - behaviour.missing_bytes], behaviour.drip_s)
        except OSError:  # the client has had enough
            return

    def _send(self, body: bytes, drip_s: float) -> None:
        if not drip_s:
            self.wfile.write(body)
            return
        for at in range(len(body)):
            self.wfile.write(body[at : at + 1])
            time.sleep(drip_s)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  http.server's name
        """Say nothing."""


@contextmanager
def serving(behaviour: Behaviour, port: int = 0) -> Iterator[str]:
    """Run one on a port of the loopback, any free one by default, and give its URL."""
    server = _Server(behaviour, port)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{behaviour.path}"
    finally:
        behaviour.hold.set()
        server.shutdown()
        server.server_close()
