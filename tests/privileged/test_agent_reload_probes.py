"""Probes come and go by SIGHUP, really in the kernel; after `off` they stay away."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

pytestmark = pytest.mark.privileged

COMMAND = (sys.executable, "-m", "agent.cli")


class Running:
    """An agent with probes, and its page of metrics."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, file: Path) -> None:
        self.process = process
        self.file = file
        self._url = f"http://127.0.0.1:{port}/metrics"

    def programs(self) -> int:
        """Return how many BPF programs the process holds."""
        held = 0
        for entry in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                held += "bpf-prog" in str(entry.readlink())
        return held

    async def states(self) -> dict[str, str]:
        """Return the state of every probe."""
        async with aiohttp.ClientSession() as session, session.get(self._url) as response:
            text = await response.text()
        pairs = re.findall(r"^tailcause_probe_state_ratio\{(.*)\} 1", text, re.MULTILINE)
        labels = [dict(re.findall(r'(\w+)="([^"]*)"', pair)) for pair in pairs]
        return {one["tailcause_probe_name"]: one["tailcause_probe_state"] for one in labels}

    def reload(self, text: str) -> None:
        """Write the file and have it read again."""
        self.file.write_text(text)
        self.process.send_signal(signal.SIGHUP)


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Running]:
    """Run an agent with the run-queue probe."""
    file = folder / "agent.toml"
    file.write_text('ebpf_probes = ["sched"]\n')
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "run", "--config", str(file), "--otlp-port", "0", "--metrics-port", "0",
        "--interval", "100ms",
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, "TAILCAUSE_STATE": str(folder)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        ready = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        yield Running(process, ready["metrics_port"], file)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition, of at most 60 s."""
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110  it lives in another process
            await asyncio.sleep(0.1)


async def test_probes_come_and_go(tmp_path: Path) -> None:
    """Switched off they leave the kernel, others come when they are named, and all in one process."""
    async with running(tmp_path) as agent:

        async def only_sched() -> bool:
            return await agent.states() == {"sched": "on"}

        await until(only_sched)
        assert agent.programs() > 0
        agent.reload("ebpf_enabled = false\n")

        async def gone() -> bool:
            return agent.programs() == 0

        await until(gone)
        agent.reload('ebpf_probes = ["sched", "mem"]\n')

        async def both() -> bool:
            return await agent.states() == {"sched": "on", "mem": "on"}

        await until(both)


async def test_off_outlasts_a_reload(tmp_path: Path) -> None:
    """What an operator took out of the kernel, no reload brings back."""
    async with running(tmp_path) as agent:

        async def on() -> bool:
            return agent.programs() > 0

        await until(on)
        off = await asyncio.create_subprocess_exec(
            *COMMAND, "off", env={**os.environ, "TAILCAUSE_STATE": str(tmp_path)},
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        assert await asyncio.wait_for(off.wait(), 60) == 0
        agent.reload('ebpf_probes = ["sched", "mem"]\n')
        await asyncio.sleep(1.5)
        assert agent.programs() == 0
        assert set((await agent.states()).values()) == {"off"}
