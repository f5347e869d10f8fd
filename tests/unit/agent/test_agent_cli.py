"""The agent as a process: it starts, enriches, forwards, exports, drains, and refuses clearly."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from agent.cli import COMMANDS
from agent.collectors.registry import COLLECTORS
from agent.host import processes
from agent.host.hierarchies import discover
from agent.host.paths import HostPaths
from tests.support.running_agent import COMMAND, agent, backend

Until = Callable[[Callable[[], object]], Awaitable[None]]


def span_tree(pid: int) -> dict[str, object]:
    """Return an OTLP/JSON request of one span from a process of this host."""
    resource = [
        {"key": "process.pid", "value": {"intValue": str(pid)}},
        {"key": "host.name", "value": {"stringValue": socket.gethostname()}},
    ]
    span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "x"}
    return {
        "resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [{"spans": [span]}]}]
    }


async def post(url: str, tree: object) -> dict[str, object]:
    """POST an OTLP/JSON traces request and return the answer."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/traces", json=tree) as response,
    ):
        assert response.status == 200
        answer: dict[str, object] = await response.json()
        return answer


async def test_spans_arrive_enriched(until: Until) -> None:
    """A span goes in by HTTP and comes out with the cgroup of the process that made it."""
    paths = HostPaths()
    expected = processes.place(paths, discover(paths), os.getpid()).cgroup
    async with backend() as served, agent("--forward", served.url) as running:
        await post(running.otlp, span_tree(os.getpid()))
        await until(lambda: served.spans)
        assert await running.end() == 0
    [span] = served.spans
    assert span.resource["tailcause.cgroup.path"] == expected
    assert (span.trace_id, span.name) == ("ab" * 16, "x")


async def test_metrics_are_pushed_with_states(until: Until) -> None:
    """Every signal's state, its values and the agent's own cost arrive, named by host."""
    async with backend() as served, agent("--export", served.url, "--disable", "gpu") as running:

        def states() -> dict[object, object]:
            return {
                point.attributes["tailcause.signal.name"]: point.attributes[
                    "tailcause.signal.state"
                ]
                for point in served.values("tailcause.signal.state")
            }

        await until(
            lambda: (
                set(states()) == {"kernel_log", *(entry.name for entry in COLLECTORS)}
                and served.values("tailcause.pipe.items")
                and served.values("system.cpu.time")
            )
        )
        assert await running.end() == 0
    assert states()["cpu"] == "ok"
    assert states()["gpu"] == "disabled"
    assert served.values("process.memory.usage")[0].value > 1e6
    assert served.values("system.cpu.time")[0].resource["host.name"] == socket.gethostname()
    assert served.values("system.cpu.time")[0].cumulative


async def test_last_values_are_pushed_at_the_end(until: Until) -> None:
    """What was read since the last push is not lost at a shutdown."""
    async with backend() as served:
        flags = ("--export", served.url, "--export-interval", "1h")
        async with agent(*flags) as running:
            await until(lambda: served.points)
            before = len(served.values("process.cpu.time"))
            assert await running.end() == 0
    assert len(served.values("process.cpu.time")) > before


async def test_prometheus_scrapes() -> None:
    """The endpoint answers in text with the host's counters."""
    async with agent() as running, aiohttp.ClientSession() as session:
        async with asyncio.timeout(30):
            text = ""
            while "system_cpu_time_seconds_total" not in text:
                async with session.get(running.metrics) as response:
                    assert response.status == 200
                    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                    text = await response.text()
        assert "process_memory_usage_bytes" in text


async def test_spans_without_a_destination_are_rejected() -> None:
    """With nowhere to forward to, the sender is told, not left to believe."""
    async with agent() as running:
        answer = await post(running.otlp, span_tree(1))
    partial = answer["partialSuccess"]
    assert isinstance(partial, dict)
    assert partial["rejectedSpans"] == "1"
    assert "--forward" in partial["errorMessage"]


async def test_stops_in_time_with_the_back_end_away() -> None:
    """A back end that is away does not hold up the shutdown."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        async with agent("--forward", url) as running:
            await post(running.otlp, span_tree(os.getpid()))
            assert await running.end() == 0


async def test_second_signal_ends_at_once() -> None:
    """While the first signal drains, the second one exits with 1."""

    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(600)
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with agent("--forward", url, "--export", "off") as running:
        await post(running.otlp, span_tree(os.getpid()))
        running.process.send_signal(signal.SIGTERM)
        assert running.process.stderr is not None
        while b"event=draining" not in await asyncio.wait_for(
            running.process.stderr.readline(), 30
        ):
            pass
        running.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running.process.wait(), 30) == 1
    server.close()


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return subprocess.run(
        (*COMMAND, *words), capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("flag", ["--otlp-port", "--metrics-port"])
def test_port_in_use_is_one_line(flag: str) -> None:
    """A taken port is told with the flag to change, and exit code 2."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        other = {"--otlp-port": "--metrics-port", "--metrics-port": "--otlp-port"}[flag]
        ended = command("run", flag, port, other, "0")
    assert (ended.returncode, ended.stdout) == (2, "")
    remedy = f"stop what listens there, or give {flag} (0: a free one)"
    assert ended.stderr == f"tailcause-agent: port {port} is in use: {remedy}\n"


def test_unknown_setting_is_one_line() -> None:
    """A misspelt setting ends with exit code 2 and the right word."""
    ended = subprocess.run(
        (*COMMAND, "once"),
        env={**os.environ, "TAILCAUSE_AGENT_OTLP_PROT": "1"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        "tailcause-agent: the environment: unknown key 'otlp_prot'; did you mean 'otlp_port'?"
    ]


def test_once_tells_every_signal() -> None:
    """`once --json` has every signal with its values or with the reason why not."""
    ended = command("once", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    signals = {entry["signal"]: entry for entry in json.loads(ended.stdout)["signals"]}
    assert set(signals) == {entry.name for entry in COLLECTORS}
    for entry in signals.values():
        assert bool(entry["samples"]) != bool(entry["reason"])


def test_doctor_tells_state_reason_and_cost() -> None:
    """`doctor --json` has a state for every signal and port, and the cost of a collection."""
    ended = command("doctor", "--json")
    findings = {finding["name"]: finding for finding in json.loads(ended.stdout)["findings"]}
    assert {"cpu", "memory", "psi", "cgroup", "gpu", "enrich"} <= set(findings)
    assert findings["cpu"]["state"] == "ok"
    assert findings["cpu"]["cost_ms"] > 0
    for finding in findings.values():
        assert finding["state"] == "ok" or finding["reason"]


def test_doctor_finds_a_broken_host(tmp_path: os.PathLike[str]) -> None:
    """A wrong procfs is a finding: exit code 1, with what to do."""
    ended = command("doctor", "--path.procfs", str(tmp_path))
    assert ended.returncode == 1
    assert "--path.procfs" in ended.stdout


def test_signals_is_the_whole_catalogue() -> None:
    """`signals --json` lists every metric with unit, source signal and Prometheus name."""
    from agent.telemetry.names import METRICS  # noqa: PLC0415  not to be loaded by the others

    rows = json.loads(command("signals", "--json").stdout)["metrics"]
    assert [row["name"] for row in rows] == [metric.name for metric in METRICS]
    assert all(row["unit"] and row["prometheus"] and row["signal"] for row in rows)


def test_signals_live_adds_state_and_cost() -> None:
    """`signals --live` collects, and says of each signal how it is and what a collection costs."""
    found = json.loads(command("signals", "--live", "--json", "--no-ebpf").stdout)["signals"]
    signals = {signal["signal"]: signal for signal in found}
    assert set(signals) == {"spans", "agent", *(entry.name for entry in COLLECTORS)}
    assert signals["memory"]["state"] == "ok"
    assert signals["memory"]["cost_ms"] > 0
    assert signals["memory"]["values"] > 0
    assert signals["ebpf"]["state"] == "disabled"
    assert "state" not in signals["spans"]


@pytest.mark.parametrize("word", ["", *(one.name for one in COMMANDS)])
def test_help_ends_with_examples(word: str) -> None:
    """Help shows examples of the command that was asked for, and exit codes."""
    ended = command(*filter(None, (word, "--help")))
    assert ended.returncode == 0
    examples = ended.stdout.split("examples:")[1].split("exit codes:")[0]
    assert f"tailcause-agent {word}".strip() in examples


def test_closed_pipe_is_no_error() -> None:
    """A reader that has seen enough makes no traceback."""
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        (*COMMAND, "signals"), stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")
