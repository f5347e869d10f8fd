"""A page is fetched within its bounds, and every way in which it cannot be has a name and a remedy."""

import socket
import time
from contextlib import closing

import pytest

from agent.servers.errors import ScrapeError
from agent.servers.fetch import fetch
from agent.telemetry.model import SignalState
from tests.support.page_server import Behaviour, serving

ENOUGH = 1 << 20


def refused(behaviour: Behaviour, deadline_s: float = 20.0, max_bytes: int = ENOUGH) -> ScrapeError:
    """Return why a page cannot be had."""
    with serving(behaviour) as url, pytest.raises(ScrapeError) as caught:
        fetch(url, deadline_s, max_bytes)
    assert caught.value.remedy
    return caught.value


def test_page() -> None:
    """The text comes as it was sent, whatever its type is called."""
    behaviour = Behaviour("x 1\n", headers={"Content-Type": "application/octet-stream"})
    with serving(behaviour) as url:
        assert fetch(url, 20.0, ENOUGH) == "x 1\n"
    assert behaviour.asked == ["/metrics"]


def test_bytes_that_are_no_text() -> None:
    """Bytes that are no UTF-8 do not stop the rest."""
    with serving(
        Behaviour("x 1\n\udcff".encode("utf-8", "surrogatepass").decode("latin-1"))
    ) as url:
        assert fetch(url, 20.0, ENOUGH).startswith("x 1\n")


def test_huge() -> None:
    """A body over the bound is given up, and says so."""
    problem = refused(Behaviour("x" * (2 << 20)))
    assert problem.outcome == "too_large"
    assert "1 MiB" in problem.reason


def test_slow_to_begin() -> None:
    """A server that takes the request and says nothing is hung, after the deadline."""
    begun_s = time.monotonic()
    problem = refused(Behaviour("x 1\n", holds=True), deadline_s=0.3)
    assert (problem.outcome, problem.state) == ("timeout", SignalState.HUNG)
    assert time.monotonic() - begun_s < 15


def test_drip() -> None:
    """A body that drips in, each byte within the time of one read, ends at the deadline."""
    problem = refused(Behaviour("x" * 4000, drip_s=0.05), deadline_s=0.5)
    assert problem.outcome == "timeout"


def test_cut_short() -> None:
    """A body that ends before its announced length is not taken for a whole page."""
    problem = refused(Behaviour("x 1\n" * 100, missing_bytes=50), deadline_s=5.0)
    assert problem.outcome in {"unreachable", "timeout"}


def test_nobody_there() -> None:
    """A port without a server is unreachable."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ScrapeError) as caught:
        fetch(f"http://127.0.0.1:{port}/metrics", 5.0, ENOUGH)
    assert (caught.value.outcome, caught.value.state) == ("unreachable", SignalState.FAILED)


def test_what_is_no_http() -> None:
    """Something that speaks another protocol is told like one that is not there."""
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        other.settimeout(20)
        port = other.getsockname()[1]
        problem = _talk_ssh(other, port)
    assert problem.outcome in {"unreachable", "timeout"}


def _talk_ssh(other: socket.socket, port: int) -> ScrapeError:
    import threading  # noqa: PLC0415  for this one

    def answer() -> None:
        connection, _ = other.accept()
        with closing(connection):
            connection.sendall(b"SSH-2.0-x\r\n")
            connection.recv(4096)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    with pytest.raises(ScrapeError) as caught:
        fetch(f"http://127.0.0.1:{port}/metrics", 10.0, ENOUGH)
    thread.join(10)
    return caught.value


@pytest.mark.parametrize(
    ("status", "state"),
    [(500, SignalState.FAILED), (404, SignalState.FAILED), (403, SignalState.NO_PERMISSION)],
)
def test_status(status: int, state: SignalState) -> None:
    """A status that is not 200 is told."""
    problem = refused(Behaviour("x 1\n", status=status))
    assert (problem.outcome, problem.state) == ("http_error", state)
    assert str(status) in problem.reason


def test_redirects_are_not_followed() -> None:
    """A page elsewhere is not fetched; where it was is told."""
    elsewhere = Behaviour("x 1\n")
    with serving(elsewhere) as url:
        problem = refused(Behaviour("", status=302, headers={"Location": url}))
    assert problem.outcome == "http_error"
    assert url in problem.reason
    assert elsewhere.asked == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/json"},
        {"Content-Type": "text/html; charset=utf-8"},
        {"Content-Type": "text/plain", "Content-Encoding": "gzip"},
    ],
)
def test_what_is_no_page(headers: dict[str, str]) -> None:
    """JSON (TensorRT-LLM's /metrics), web pages and compressed bodies are no metrics page."""
    problem = refused(Behaviour("[{}]", headers=headers))
    assert problem.outcome == "not_metrics"
    assert "/prometheus/metrics" in problem.remedy
