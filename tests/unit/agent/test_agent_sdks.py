"""The OpenTelemetry SDKs for Python and JavaScript send to a running agent, over each protocol."""

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode

from agent.telemetry.model import Span, SpanStatus
from tests.support import js_packages
from tests.support.running_agent import Agent, Backend, agent, backend

Until = Callable[[Callable[[], object]], Awaitable[None]]
COUNT = 25


def send_with_python(exporter: SpanExporter) -> None:
    """Make spans as a service would that has the SDK."""
    provider = TracerProvider(
        resource=Resource.create({"service.name": "python"}), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    for number in range(COUNT):
        span = tracer.start_span(f"span {number}", kind=SpanKind.SERVER)
        span.set_attributes({"n": number, "ratio": 0.5, "tags": ("a", "b")})
        span.record_exception(ValueError("no user 4711"))
        span.set_status(Status(StatusCode.ERROR, "no user 4711"))
        span.end()
    provider.shutdown()


def check(arrived: list[Span], service: str) -> None:
    """Compare what arrived with what was sent."""
    assert sorted(span.name for span in arrived) == sorted(f"span {n}" for n in range(COUNT))
    assert {span.resource["service.name"] for span in arrived} == {service}
    assert {span.status for span in arrived} == {SpanStatus.ERROR}
    for span in arrived:
        assert span.name == f"span {span.attributes['n']}"
        assert (span.attributes["ratio"], span.attributes["tags"]) == (0.5, ("a", "b"))
    assert len({span.span_id for span in arrived}) == COUNT


def python_exporter(protocol: str, running: Agent) -> SpanExporter:
    """Return the SDK's exporter for a protocol."""
    if protocol == "grpc":
        return GrpcExporter(running.grpc, insecure=True)
    return HttpExporter(f"{running.otlp}/v1/traces", compression=Compression.Gzip)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
async def test_python(protocol: str, until: Until) -> None:
    """Every span arrives once, with its attributes."""
    async with backend() as back, agent("--forward", back.url) as running:
        await asyncio.to_thread(send_with_python, python_exporter(protocol, running))
        await until(lambda: len(back.spans) >= COUNT)
        assert await running.end() == 0
    check(back.spans, "python")


def js_modules() -> Path:
    """Return the folder of the SDK's packages."""
    if reason := js_packages.why_not():
        pytest.skip(reason)
    return js_packages.folder() / "node_modules"


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["http/json", "http/protobuf", "grpc"])
async def test_javascript(protocol: str, until: Until) -> None:
    """Every span arrives once, with its attributes; the first run installs the packages."""
    modules = await asyncio.to_thread(js_modules)
    async with backend() as back, agent("--forward", back.url) as running:
        url = f"http://{running.grpc}" if protocol == "grpc" else f"{running.otlp}/v1/traces"
        await asyncio.to_thread(run_js, modules, protocol, url)
        await until(lambda: len(back.spans) >= COUNT)
        await metrics_tell_of(back, "grpc" if protocol == "grpc" else "http", until)
    check(back.spans, "js")


def run_js(modules: Path, protocol: str, url: str) -> None:
    """Run the sender; it fails when the agent refuses."""
    done = subprocess.run(
        ("node", str(js_packages.JS / "send.cjs"), protocol, url, str(COUNT)),
        env={**os.environ, "NODE_PATH": str(modules)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr


async def metrics_tell_of(back: Backend, transport: str, until: Until) -> None:
    """Wait until the agent's own metrics count the requests of a transport."""

    def told() -> bool:
        return any(
            point.attributes["transport"] == transport and point.value >= 1
            for point in back.values("tailcause.otlp.requests")
        )

    await until(told)
