"""A real agent with its probes on: the ledger of a real workload, the matrix, `off`, and nothing left behind."""

import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.otlp_collector import Collector, attributes, collecting
from tests.support.probe_session import needs_probes
from tests.support.workload_process import serving

pytestmark = [pytest.mark.privileged, needs_probes]

AGENT = (sys.executable, "-m", "agent.cli")
WAIT = "tailcause.wait."
MODEL = ("layers=2", "hidden=128", "max_running=4", "prompt_cache=0")


@dataclass
class Agent:
    """A running agent and its state folder."""

    process: asyncio.subprocess.Process
    otlp: str
    metrics: str
    state: Path

    async def scrape(self) -> dict[str, float]:
        """Return the current series."""
        async with aiohttp.ClientSession() as session, session.get(self.metrics) as response:
            lines = (await response.text()).splitlines()
        rows = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in rows}

    async def until(self, name: str, reached: Callable[[dict[str, float]], bool]) -> None:
        """Wait for a state of the series."""
        deadline_s = time.monotonic() + 60
        while not reached(series := await self.scrape()):
            assert time.monotonic() < deadline_s, f"{name}: {series}"
            await asyncio.sleep(0.2)


@contextlib.asynccontextmanager
async def agent(state: Path, *flags: str) -> AsyncIterator[Agent]:
    """Run an agent with its probes on."""
    process = await asyncio.create_subprocess_exec(
        *AGENT, "run", "--otlp-port", "0", "--metrics-port", "0", "--interval", "500ms", *flags,
        stdout=subprocess.PIPE, env={**os.environ, "TAILCAUSE_STATE": str(state)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        ready = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        base = "http://127.0.0.1"
        yield Agent(
            process,
            f"{base}:{ready['otlp_port']}",
            f"{base}:{ready['metrics_port']}/metrics",
            state,
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) == 0


def is_on(series: Mapping[str, float], probe: str) -> bool:
    """Tell whether the agent says that a probe is on."""
    labels = f'{{tailcause_probe_name="{probe}",tailcause_probe_state="on"}}'
    return f"tailcause_probe_state_ratio{labels}" in series


async def load(url: str, requests: int) -> None:
    """Send requests, four at a time."""
    free = asyncio.Semaphore(4)

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        body = {"prompt": f"{number} " + "x" * 80, "max_tokens": 16, "user": "tenant-0007"}
        async with free, session.post(f"{url}/v1/completions", json=body) as response:
            await response.read()

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(one(session, number) for number in range(requests)))


def ledger(span: Span) -> dict[str, Any]:
    """Return a span's ledger."""
    found = attributes(list(span.attributes))
    return {key.removeprefix(WAIT): v for key, v in found.items() if key.startswith(WAIT)}


def named_share(span: Span) -> float:
    """Return which share of a span's wall time has a name."""
    wall_s = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
    return 1 - float(ledger(span)["unexplained"]) / wall_s


async def served(state: Path, requests: int, *flags: str) -> Collector:
    """Run load through a workload and an agent; return what the back end got."""
    async with (
        collecting() as collector,
        agent(state, "--forward", collector.url, "--export", "off", *flags) as running,
    ):
        await running.until("probes", lambda series: is_on(series, "span"))
        with serving(state, *MODEL, arguments=("--otlp", running.otlp)) as server:
            await load(server.url, requests)
            server.process.terminate()
            await asyncio.to_thread(server.process.wait, 60)
        series = await running.scrape()
        assert series.get('tailcause_ledger_spans_total{outcome="overflow"}', 0) == 0
    return collector


async def test_steps_are_explained(tmp_path: Path) -> None:
    """Every step span of a real engine has a ledger, and the named parts are at least 95 % of its wall time."""
    collector = await served(tmp_path, 23)
    steps = collector.named("engine step")
    walls = [step.end_time_unix_nano - step.start_time_unix_nano for step in steps]
    shares = [named_share(step) for step in steps]
    whole = sum(s * w for s, w in zip(shares, walls, strict=True)) / sum(walls)
    assert len(steps) >= 23 * 4
    assert {ledger(step)["scope"] for step in steps} == {"span"}
    assert whole >= 0.95
    assert statistics.median(shares) >= 0.95
    assert sum(ledger(step).get("cpu", 0.0) for step in steps) > 0


async def test_look_ups_are_explained(tmp_path: Path) -> None:
    """A look-up of some microseconds is measured on the thread that does it; the way there is a span of its own."""
    collector = await served(tmp_path, 23)
    look_ups, ways = collector.named("sql SELECT tenants"), collector.named("sql wait")
    wall_s = [(one.end_time_unix_nano - one.start_time_unix_nano) / 1e9 for one in look_ups]
    unexplained_s = sum(float(ledger(one)["unexplained"]) for one in look_ups)
    assert len(look_ups) == len(ways) == 23
    assert {ledger(one)["scope"] for one in look_ups} == {"span"}
    assert unexplained_s <= 0.05 * sum(wall_s)


async def test_requests_get_what_their_steps_waited_for(tmp_path: Path) -> None:
    """A request has the ledger of its steps, its look-up one of its own thread, its queue one of the steps meanwhile."""
    collector = await served(tmp_path, 23)
    requests = collector.named("POST /v1/completions")
    steps = collector.named("engine step")
    assert len(requests) == 23
    for request in requests:
        own = ledger(request)
        served_by = [s for s in steps if any(link.span_id == request.span_id for link in s.links)]
        served_by.sort(key=lambda step: step.start_time_unix_nano)
        linked = [ledger(step) for step in served_by[:-1]]  # in the midst of the last one it ends
        assert own["scope"] == "steps"
        assert own["cpu"] >= 0.999 * sum(one.get("cpu", 0.0) for one in linked)
    assert {ledger(span)["scope"] for span in collector.named("sql SELECT tenants")} == {"span"}
    assert {ledger(span)["scope"] for span in collector.named("prefill")} == {"steps"}
    assert any(ledger(span).get("scope") == "steps" for span in collector.named("queue"))


async def test_strangers_get_the_ledger_of_their_process(tmp_path: Path) -> None:
    """A span of a server that marks nothing, created when it was over, is explained by its process's waits."""
    program = "import time\nwhile True:\n t = time.time() + .05\n while time.time() < t: pass\n time.sleep(.05)\n"
    busy = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    try:
        async with (
            collecting() as collector,
            agent(tmp_path, "--forward", collector.url, "--export", "off", "--ebpf-watch", str(busy.pid)) as it,
        ):  # fmt: skip
            await it.until("probes", lambda series: is_on(series, "waits"))
            await asyncio.sleep(2.5)
            await post_backdated(it.otlp, busy.pid, 1.0)
            async with asyncio.timeout(30):
                while not collector.spans:  # noqa: ASYNC110  another process fills it
                    await asyncio.sleep(0.05)
    finally:
        busy.kill()
        await busy.wait()
    found = ledger(collector.spans[0])
    assert found["scope"] == "process"
    assert found["cpu"] + found.get("runqueue", 0.0) == pytest.approx(0.5, abs=0.2)
    assert found["sleep"] == pytest.approx(0.5, abs=0.2)


async def post_backdated(url: str, pid: int, length_s: float) -> None:
    """Send a span of a process that ends now and began a while ago."""
    now_ns = time.time_ns()
    resource = [
        {"key": "process.pid", "value": {"intValue": str(pid)}},
        {"key": "host.name", "value": {"stringValue": socket.gethostname()}},
    ]
    span = {
        "traceId": "ab" * 16, "spanId": "cd" * 8, "name": "llm_request",
        "startTimeUnixNano": str(now_ns - int(length_s * 1e9)), "endTimeUnixNano": str(now_ns),
    }  # fmt: skip
    tree = {
        "resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [{"spans": [span]}]}]
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/traces", json=tree) as response,
    ):
        assert response.status == 200


def bpf_objects(pid: int) -> list[str]:
    """Return what a process holds in the kernel's BPF."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            target = str(entry.readlink())
            if "bpf" in target:
                found.append(target)
    return found


async def test_off_lets_go_of_everything_within_a_second(tmp_path: Path) -> None:
    """`off` names what it took off, the agent goes on without it, and holds nothing in the kernel."""
    async with agent(tmp_path, "--export", "off") as running:
        await running.until("probes", lambda series: is_on(series, "span"))
        pid = running.process.pid
        assert bpf_objects(pid)
        begun_s = time.monotonic()
        ended = await asyncio.to_thread(
            subprocess.run,
            (*AGENT, "off", "--json"),
            env={**os.environ, "TAILCAUSE_STATE": str(tmp_path)},
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        took_s = time.monotonic() - begun_s
        [answer] = json.loads(ended.stdout)["agents"]
        assert (ended.returncode, answer["pid"]) == (0, pid)
        assert {"sched", "span"} <= set(answer["detached"])
        assert 0 < answer["took_s"] < 1.0
        assert took_s < 10.0
        assert [one for one in bpf_objects(pid) if "prog" in one or "link" in one] == []
        await running.until("off", lambda series: not is_on(series, "sched"))
        series = await running.scrape()
        assert any(name.startswith("system_cpu_time_seconds_total") for name in series)
        off = '{tailcause_probe_name="sched",tailcause_probe_state="off"}'
        assert series[f"tailcause_probe_state_ratio{off}"] == 1


async def test_agent_without_capabilities_works_as_before(tmp_path: Path) -> None:
    """Without CAP_BPF and its kin the probes have a named state, and the rest goes on."""
    command = (
        "setpriv", "--bounding-set=-bpf,-sys_admin,-perfmon", "--inh-caps=-bpf,-sys_admin,-perfmon", *AGENT,
        "doctor", "--json", "--otlp-port", "0", "--metrics-port", "0",
    )  # fmt: skip
    ended = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60, check=False
    )
    findings = {one["name"]: one for one in json.loads(ended.stdout)["findings"]}
    assert findings["ebpf"]["state"] == "no_permission"
    assert findings["probe sched"]["state"] == "no_permission"
    assert "CAP_BPF" in findings["probe sched"]["reason"]
    assert findings["cpu"]["state"] == "ok"


def test_doctor_tells_every_probe() -> None:
    """Each probe has a state, a reason or its cost for whoever triggers it."""
    ended = subprocess.run(
        (*AGENT, "doctor", "--json", "--otlp-port", "0", "--metrics-port", "0"),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    findings = {one["name"]: one for one in json.loads(ended.stdout)["findings"]}
    assert {"probe sched", "probe span", "probe cuda"} <= set(findings)
    assert findings["probe sched"]["state"] == "ok"
    assert 0 < findings["probe sched"]["ns_per_event"] < 100_000
    assert findings["probe cuda"]["state"] == "off"
    assert "asked for" in findings["probe cuda"]["reason"]
