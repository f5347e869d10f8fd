"""The span side of a running agent: ports, missing parts, TLS, tokens, sampling, redaction, its own metrics."""

import asyncio
import json
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from agent.otlp.codec import PROTOBUF, Signal
from agent.otlp.grpc_receiver import SERVICES
from tests.support.certificates import make_certificates
from tests.support.running_agent import COMMAND, Agent, agent, backend

Until = Callable[[Callable[[], object]], Awaitable[None]]
HALF_A_SECOND = 500_000_000


def request(
    trace_ids: list[bytes], *, error: bool = False, prompt: str = ""
) -> trace_service_pb2.ExportTraceServiceRequest:
    """Return a traces request with one served request per trace."""
    message = trace_service_pb2.ExportTraceServiceRequest()
    resource_spans = message.resource_spans.add()
    resource_spans.resource.attributes.add(key="service.name").value.string_value = "chat"
    scope = resource_spans.scope_spans.add()
    for trace_id in trace_ids:
        span = scope.spans.add(trace_id=trace_id, span_id=b"s" * 8, name="POST", kind=2)
        span.end_time_unix_nano = time.time_ns()
        span.start_time_unix_nano = span.end_time_unix_nano - HALF_A_SECOND
        span.attributes.add(key="gen_ai.request.model").value.string_value = "m"
        if prompt:
            span.attributes.add(key="gen_ai.prompt").value.string_value = prompt
        if error:
            span.status.code = 2
    return message


async def post(running: Agent, message: Any, **options: Any) -> int:
    """POST a request and return the status."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"{running.otlp}/v1/traces",
            data=message.SerializeToString(),
            headers={"Content-Type": PROTOBUF, **options.pop("headers", {})},
            **options,
        ) as response,
    ):
        return response.status


async def export(channel: grpc.aio.Channel, message: Any, **options: Any) -> None:
    """Export a request over gRPC."""
    call = channel.unary_unary(f"/{SERVICES[Signal.TRACES]}/Export")
    await call(message.SerializeToString(), timeout=30, **options)


def refusal(*flags: str, env: dict[str, str] | None = None) -> str:
    """Run an agent that cannot start, and return what it says."""
    command = (*COMMAND, "run", "--no-ebpf", "--otlp-port", "0", "--metrics-port", "0", *flags)
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=env
    )
    assert ended.returncode == 2
    return ended.stderr.strip().splitlines()[-1]


def test_a_taken_grpc_port_is_one_line() -> None:
    """The message names the port and the flag."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refusal("--otlp-grpc-port", str(port))
    assert f"port {port} is in use" in said
    assert "--otlp-grpc-port" in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--otlp-grpc-port", "x"), "otlp_grpc_port must be a port"),
        (("--tls-cert", "c.pem"), "tls_cert and tls_key belong together"),
        (("--tls-client-ca", "c.pem"), "tls_client_ca needs tls_cert"),
        (("--tls-cert", "/no/c.pem", "--tls-key", "/no/k.pem"), "/no/c.pem"),
        (("--bearer-token-file", "/no/tokens"), "bearer_token_file /no/tokens"),
        (("--sample-rest", "0"), "sample_rest must be a share"),
        (("--sample-rest", "1.5"), "sample_rest must be a share"),
    ],
)
def test_settings_that_cannot_be_used_are_one_line(flags: tuple[str, ...], said: str) -> None:
    """Each names its setting."""
    assert said in refusal(*flags)


async def test_grpc_can_be_switched_off() -> None:
    """There is no port, and HTTP works."""
    async with agent("--otlp-grpc-port", "off") as running:
        assert running.grpc == ""
        assert await post(running, request([b"t" * 16])) == 200


async def test_without_grpcio_http_goes_on(tmp_path: Path) -> None:
    """The agent says once what is lost and what to do."""
    (tmp_path / "grpc").mkdir()
    (tmp_path / "grpc" / "__init__.py").write_text("raise ModuleNotFoundError('grpc')\n")
    async with agent(env={"PYTHONPATH": str(tmp_path)}) as running:
        assert running.grpc == ""
        assert await post(running, request([b"t" * 16])) == 200
        await running.end()
        assert running.process.stderr is not None
        said = (await running.process.stderr.read()).decode()
    assert said.count("event=otlp_grpc_off") == 1
    assert "pip install" in said


async def test_tls_and_token_by_settings(tmp_path: Path) -> None:
    """Both transports ask for both, and serve who has them."""
    files = make_certificates(tmp_path)
    tokens = tmp_path / "tokens"
    tokens.write_text("good\n")
    flags = ("--tls-cert", str(files.server), "--tls-key", str(files.server_key))
    async with agent(*flags, "--bearer-token-file", str(tokens)) as running:
        running.otlp = running.otlp.replace("http:", "https:")
        context = ssl.create_default_context(cafile=str(files.authority))
        message, header = request([b"t" * 16]), {"Authorization": "Bearer good"}
        assert await post(running, message, ssl=context) == 401
        assert await post(running, message, ssl=context, headers=header) == 200
        credentials = grpc.ssl_channel_credentials(files.authority.read_bytes())
        async with grpc.aio.secure_channel(running.grpc, credentials) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await export(channel, message)
            await export(channel, message, metadata=(("authorization", "Bearer good"),))
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_sampling_keeps_the_failed_and_flushes_at_the_end(until: Until) -> None:
    """What is held when the agent stops is decided and sent; what is dropped is counted."""
    dull = [bytes(15) + bytes([1]), bytes(15) + bytes([2])]
    failed = bytes(15) + bytes([3])
    flags = ("--sample-rest", "0.01", "--sample-wait", "60s")
    async with backend() as back, agent("--forward", back.url, *flags) as running:
        for _ in range(60):  # so that it is known what is slow
            await post(running, request([b"w" * 16]))
        await post(running, request(dull))
        await post(running, request([failed], error=True))
        assert await running.end() == 0
        await until(lambda: any(span.trace_id == failed.hex() for span in back.spans))
    assert not {trace_id.hex() for trace_id in dull} & {span.trace_id for span in back.spans}
    outcomes = {
        point.attributes["outcome"]: point.value
        for point in back.values("tailcause.sampling.spans")
    }
    assert outcomes["dropped"] >= 2
    assert outcomes["failed"] == 1


async def test_both_transports_are_redacted_and_measured(until: Until) -> None:
    """A prompt comes out of neither; requests, redactions and latencies are exported."""
    async with backend() as back, agent("--forward", back.url) as running:
        message = request([b"t" * 16], prompt="tell me")
        assert await post(running, message) == 200
        async with grpc.aio.insecure_channel(running.grpc) as channel:
            await export(channel, message)
        await until(lambda: len(back.spans) >= 2)
        await until(lambda: back.values("tailcause.redaction.values"))
        async with aiohttp.ClientSession() as session, session.get(running.metrics) as response:
            text = await response.text()
    assert [span.attributes["gen_ai.prompt"] for span in back.spans] == ["REDACTED"] * 2
    assert re.search(r'tailcause_otlp_requests_total\{code="200",transport="http"\} 1\n', text)
    assert re.search(r'tailcause_otlp_requests_total\{code="OK",transport="grpc"\} 1\n', text)
    assert "gen_ai_server_request_duration_seconds_count{" in text
    assert "tailcause_requests_in_flight" not in text.replace("# ", "")


async def test_the_detector_takes_both_transports(tmp_path: Path) -> None:
    """The same receivers stand before the detector; its ready line names both ports."""
    command = (COMMAND[0], "-m", "detector.cli.main", "serve", "--state", str(tmp_path),
               "--otlp-port", "0", "--api-port", "0")  # fmt: skip
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        ready = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        message = request([b"t" * 16])
        async with grpc.aio.insecure_channel(f"127.0.0.1:{ready['otlp_grpc_port']}") as channel:
            await export(channel, message)
        running = Agent(process, f"http://127.0.0.1:{ready['otlp_port']}", "", "")
        assert await post(running, request([b"u" * 16])) == 200
        url = f"http://127.0.0.1:{ready['api_port']}/api/v1/status"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            assert (await response.json())["spans"] == 2
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) == 0
