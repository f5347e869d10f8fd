"""The agent and its peer as processes: started, scraped, and what they use."""

import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from tests.support.archive import unpacked

NODE_EXPORTER = "prometheus-node-exporter"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STOP_S = 30.0
_READY_S = 60.0
_HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "User-Agent": "Prometheus/2.42.0",
}
"""What Prometheus sends."""


class FailedError(Exception):
    """Something that is measured does not work: its speed does not matter."""


@dataclass(frozen=True)
class Running:
    """A process and its metrics page."""

    process: "subprocess.Popen[str]"
    metrics: str
    otlp: str = ""
    grpc: str = ""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def cpu_s(self) -> float:
        """Read the CPU time that it has used, in steps of a tick."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def rss_bytes(self) -> int:
        """Read what of it is resident now."""
        return self._status("VmRSS")

    def peak_rss_bytes(self) -> int:
        """Read the most that has been resident."""
        return self._status("VmHWM")

    def _status(self, name: str) -> int:
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
        if found is None:
            raise FailedError(f"process {self.pid} has ended")
        return int(found[1]) * 1024

    def scrape(self) -> str:
        """Return its metrics page, asked for as Prometheus does."""
        return get(self.metrics)

    def stop(self) -> None:
        """Ask it to stop."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


def get(url: str) -> str:
    """Return a page; raises OSError, or `FailedError` when it is refused."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    try:
        connection.request("GET", parts.path, headers=_HEADERS)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.getheader("Content-Encoding") == "gzip":
        body = gzip.decompress(body)
    if answer.status != 200:
        raise FailedError(f"GET {url} answers {answer.status}: {body[:200]!r}")
    return body.decode()


def series(page: str) -> int:
    """Count the series of a metrics page."""
    return sum(1 for line in page.splitlines() if line and not line.startswith("#"))


@contextmanager
def agent(flags: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[Running]:
    """Run an agent on free ports and loopback."""
    command = (sys.executable, "-m", "agent.cli", "run", "--otlp-port", "0", "--metrics-port", "0")
    with log.open("a") as errors:
        process = subprocess.Popen(
            (*command, *flags),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **environment},
        )
        running = Running(process, "")
        try:
            ready = _ready(process, log)
            base = "http://127.0.0.1:"
            yield Running(
                process,
                f"{base}{ready['metrics_port']}/metrics",
                f"{base}{ready['otlp_port']}",
                f"127.0.0.1:{ready['otlp_grpc_port']}" if "otlp_grpc_port" in ready else "",
            )
        finally:
            running.stop()


def _ready(process: "subprocess.Popen[str]", log: Path) -> dict[str, int]:
    stdout: IO[str] | None = process.stdout
    assert stdout is not None
    line = stdout.readline()
    if not line:
        raise FailedError(f"the agent does not start; its log is {log}:\n{log.read_text()[-2000:]}")
    ready: dict[str, int] = json.loads(line)
    return ready


@contextmanager
def node_exporter() -> Iterator[Running]:
    """Run Debian's node exporter with the collectors that it has by default; never as a service."""
    binary, port = unpacked(NODE_EXPORTER), free_port()
    process = subprocess.Popen(
        (binary, f"--web.listen-address=127.0.0.1:{port}"), stderr=subprocess.DEVNULL, text=True
    )
    running = Running(process, f"http://127.0.0.1:{port}/metrics")
    try:
        _await_page(running)
        yield running
    finally:
        running.stop()


def _await_page(running: Running) -> None:
    deadline_s = time.monotonic() + _READY_S
    while running.process.poll() is None:
        try:
            running.scrape()
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)
        else:
            return
    raise FailedError(f"{running.process.args!r} ended with {running.process.returncode}")


def free_port() -> int:
    """Return a port on loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
