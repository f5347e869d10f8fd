"""The agent as a process of its own, and a back end that keeps what it sends."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from agent.http.server import Server
from agent.otlp.codec import Message, Signal, points, spans
from agent.otlp.receiver import Receiver, Verdict
from agent.telemetry.model import Point, Span

COMMAND = (sys.executable, "-m", "agent.cli")


@dataclass
class Backend:
    """What arrived at the back end."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)

    async def accept(self, _: Signal, message: Message) -> Verdict:
        """Keep everything."""
        self.spans += spans(message)
        self.points += points(message)
        return Verdict()

    def values(self, metric: str) -> list[Point]:
        """Return what arrived of a metric."""
        return [point for point in self.points if point.metric == metric]


@contextlib.asynccontextmanager
async def backend() -> AsyncIterator[Backend]:
    """Serve a back end on a free port."""
    served = Backend()
    server = Server(Receiver(served.accept).routes())
    served.url = f"http://127.0.0.1:{await server.start()}"
    try:
        yield served
    finally:
        await server.stop()


@dataclass
class Agent:
    """A running agent; `grpc` is host:port, empty where it has no gRPC."""

    process: asyncio.subprocess.Process
    otlp: str
    metrics: str
    grpc: str

    async def end(self) -> int:
        """Ask it to stop and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), 30)


@contextlib.asynccontextmanager
async def agent(*flags: str, env: Mapping[str, str] | None = None) -> AsyncIterator[Agent]:
    """Run an agent on free ports, at a quick pace."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "run", "--otlp-port", "0", "--metrics-port", "0", "--interval", "100ms",
        "--export-interval", "200ms", "--no-ebpf", *flags,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **(env or {})},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        ready = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        assert ready["event"] == "ready"
        base = "http://127.0.0.1:"
        grpc = f"127.0.0.1:{ready['otlp_grpc_port']}" if "otlp_grpc_port" in ready else ""
        metrics = f"{base}{ready['metrics_port']}/metrics"
        yield Agent(process, f"{base}{ready['otlp_port']}", metrics, grpc)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
