"""Without privileges the agent serves all the same, says once what is lost, and shows it as states."""

import asyncio
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.running_agent import COMMAND, agent, backend

Until = Callable[[Callable[[], object]], Awaitable[None]]


def status_of(pid: int, field: str) -> str:
    """Return a field of a process's status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{field}:"))


async def test_agent_without_a_capability(until: Until) -> None:
    """It has none left, forwards spans, exports what anybody may read, and `ebpf` is disabled with the reason."""
    async with backend() as served, agent("--unprivileged", "--forward", served.url) as running:
        assert int(status_of(running.process.pid, "CapEff"), 16) == 0
        assert int(status_of(running.process.pid, "CapPrm"), 16) == 0
        assert status_of(running.process.pid, "NoNewPrivs") == "1"
        span = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "x"}
        tree = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{running.otlp}/v1/traces", json=tree) as response,
        ):
            assert response.status == 200
        await until(lambda: served.spans and served.values("system.memory.limit"))

        def states() -> dict[object, object]:
            return {
                point.attributes["tailcause.signal.name"]: point.attributes[
                    "tailcause.signal.state"
                ]
                for point in served.values("tailcause.signal.state")
            }

        await until(lambda: states().get("ebpf") == "disabled")
        assert await running.end() == 0
        assert running.process.stderr is not None
        log = (await running.process.stderr.read()).decode()
    [told] = re.findall(r"event=unprivileged lost=(.*)", log)
    assert "the latency ledger" in told
    assert "other users" in told


def test_doctor_names_what_is_lost() -> None:
    """Each capability is given up, with what it is for."""
    ended = subprocess.run(
        (*COMMAND, "doctor", "--unprivileged", "--json", "--otlp-port", "0", "--metrics-port", "0",
         "--otlp-grpc-port", "off"),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    findings = {finding["name"]: finding for finding in json.loads(ended.stdout)["findings"]}
    assert findings["ebpf"]["state"] == "disabled"
    assert findings["ebpf"]["reason"] == "unprivileged: no probes"
    assert findings["CAP_BPF"]["state"] == "given_up"
    assert findings["CAP_SYSLOG"]["what"] == "the kernel's log: Xids, OOM kills"
    assert "host pids" in findings


def outsider() -> tuple[str, ...]:
    """Return what runs a command as somebody without rights: nobody, else root without capabilities."""
    if os.geteuid() != 0:
        return ()
    bare = ("setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")
    nobody = (*bare, "--reuid=65534", "--regid=65534", "--clear-groups")
    tried = subprocess.run(
        (*nobody, *COMMAND, "signals"), capture_output=True, timeout=60, check=False
    )
    return bare if tried.returncode else nobody


@pytest.fixture
def state_dir() -> Iterator[str]:
    """Return a folder that anybody may use."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield folder


async def test_nobody_can_run_it(state_dir: str, until: Until) -> None:
    """Started without rights and without being told so, it serves, and every signal has a state of its own."""
    before = outsider()
    env = {**os.environ, "TAILCAUSE_STATE": state_dir, "HOME": state_dir}
    async with backend() as served:
        process = await asyncio.create_subprocess_exec(
            *before, *COMMAND, "run", "--otlp-port", "0", "--metrics-port", "0",
            "--interval", "100ms", "--export-interval", "200ms", "--export", served.url,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            ready = await asyncio.wait_for(process.stdout.readline(), 60)
            assert json.loads(ready)["event"] == "ready"
            assert int(status_of(process.pid, "CapEff"), 16) == 0
            await until(lambda: served.values("system.cpu.time"))

            def state() -> object:
                return {
                    point.attributes["tailcause.signal.name"]: point.attributes[
                        "tailcause.signal.state"
                    ]
                    for point in served.values("tailcause.signal.state")
                }.get("ebpf")

            await until(lambda: state() in {"no_permission", "not_supported"})
            process.terminate()
            _, log = await asyncio.wait_for(process.communicate(), 30)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0
    assert b"event=few_privileges lost=" in log
