"""Settings of the way out: what is refused, what is secret, and to whom it goes; and the agent over gRPC."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest
from aiohttp import ClientSession

from agent.config import Config
from agent.config_load import load
from agent.errors import ConfigError
from agent.forwarding import Forwarding
from agent.otlp.admission import Admission
from agent.otlp.grpc_receiver import GrpcReceiver
from agent.state import spool_dir
from tests.support.running_agent import Backend, agent

Until = Callable[[Callable[[], object]], Awaitable[None]]
FORWARD = {"forward": "https://otlp.example:4318"}


def config(**flags: object) -> Config:
    """Return a configuration from flags."""
    return load(None, {}, flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"forward": "ftp://x"}, "forward must be a URL"),
        ({"kubelet": "grpc://x:1"}, "kubelet must be a URL"),
        ({"compression": "zstd"}, "compression must be gzip or none"),
        ({"forward_cert": "a"}, "forward_cert and forward_key belong together"),
        ({"spool_bytes": "1000"}, "spool_bytes must be at least"),
        ({"max_series": "1"}, "max_series must be at least 2"),
        ({**FORWARD, "headers": "no pair"}, "NAME=VALUE"),
        ({**FORWARD, "headers": "Content-Type=secret"}, "'Content-Type' cannot be set"),
        ({**FORWARD, "headers": {"X": "sec\nret"}}, "the value of 'X' must be printable"),
        ({"forward": "http://otlp.example", "forward_token_file": "t"}, "not sent in the clear"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(flags: dict[str, object], message: str) -> None:
    """Each with the setting's name and what to do, and without any value of a header."""
    with pytest.raises(ConfigError, match=message) as refusal:
        config(**flags)
    assert "secret" not in str(refusal.value)
    assert "ret" not in str(refusal.value).split()


@pytest.mark.parametrize("url", ["grpc://node:4317", "grpcs://node", "http://[::1]:1", "https://n"])
def test_four_schemes(url: str) -> None:
    """HTTP and gRPC, each with and without TLS."""
    assert config(forward=url).forwarding.spans_url == url


def test_headers_of_a_file_and_of_the_environment(tmp_path: Path) -> None:
    """A table in TOML keeps the spelling of names; the environment has pairs."""
    file = tmp_path / "agent.toml"
    file.write_text('forward = "https://n"\n[headers]\nX-Scope-OrgID = "a=b"\n')
    assert load(file, {}, {}).headers == {"X-Scope-OrgID": "a=b"}
    environment = {"TAILCAUSE_AGENT_HEADERS": "api-key=k=1, X-Other=v"}
    assert load(file, environment, {}).headers == {"api-key": "k=1", "X-Other": "v"}


def test_secrets_go_to_one_origin_alone() -> None:
    """Metrics that go elsewhere carry neither headers nor token nor certificate."""
    said = Forwarding(
        "https://a:1", "https://b:1", "", {"api-key": "k"}, "ca", "cert", "key", "token"
    )
    own, other = said.target("https://a:1"), said.target("https://b:1")
    assert (own.headers, own.token_file, own.cert_file) == ({"api-key": "k"}, "token", "cert")
    assert (other.headers, other.token_file, other.cert_file) == ({}, "", "")
    assert other.ca_file == "ca"
    assert "'k'" not in repr(said)


def test_no_gzip_on_this_host() -> None:
    """Compression costs more than the loopback does, unless it is asked for."""
    said = Forwarding("http://127.0.0.1:1")
    assert said.target("http://127.0.0.1:1").compression == "none"
    assert said.target("http://node:1").compression == "gzip"
    assert (
        Forwarding("http://[::1]:1", compression="gzip").target("http://[::1]:1").compression
        == "gzip"
    )


def test_each_back_end_has_a_spool_of_its_own() -> None:
    """What was meant for one is never sent to another; both pipes together keep to the bound."""
    said = Forwarding("http://a", "http://a", spool_dir="/s", spool_bytes=1 << 20)
    spans, metrics = said.spool("spans", "http://a"), said.spool("metrics", "http://a")
    other = said.spool("spans", "http://b")
    assert spans is not None
    assert metrics is not None
    assert other is not None
    assert len({spans.folder, metrics.folder, other.folder}) == 3
    assert spans.max_bytes + metrics.max_bytes <= 1 << 20
    assert Forwarding(spool_bytes=0).spool("spans", "http://a") is None


@pytest.mark.parametrize(
    ("environment", "euid", "expected"),
    [
        ({"TAILCAUSE_STATE": "/x"}, 0, "/x/agent/spool"),
        ({}, 0, "/var/lib/tailcause/agent/spool"),
        ({"HOME": "/h"}, 1, "/h/.local/state/tailcause/agent/spool"),
        ({"XDG_STATE_HOME": "/s"}, 1, "/s/tailcause/agent/spool"),
    ],
)
def test_where_the_spool_is(environment: Mapping[str, str], euid: int, expected: str) -> None:
    """In the state folder, as all that the product keeps."""
    assert spool_dir(environment, euid) == Path(expected)


async def test_the_agent_forwards_over_grpc(until: Until) -> None:
    """Spans and metrics arrive at a gRPC back end, compressed."""
    served = Backend()
    receiver = GrpcReceiver(Admission(served.accept))
    port = await receiver.start("127.0.0.1", 0)
    span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "x"}
    tree = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    try:
        flags = ("--forward", f"grpc://127.0.0.1:{port}", "--compression", "gzip")
        async with agent(*flags) as running, ClientSession() as session:
            async with session.post(f"{running.otlp}/v1/traces", json=tree) as answer:
                assert answer.status == 200
            await until(lambda: served.spans and served.values("process.cpu.time"))
            assert await running.end() == 0
    finally:
        await receiver.stop()
    assert [one.span_id for one in served.spans] == ["cd" * 8]
