"""The agent as a service: what systemd is told, what it says of itself, and how soon it is of use."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from tests.support.running_agent import COMMAND, agent, backend

Until = Callable[[Callable[[], object]], Awaitable[None]]


class Manager:
    """A service manager that keeps what it is told."""

    def __init__(self, path: Path) -> None:
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.listening.bind(str(path))
        self.listening.setblocking(False)
        self.told: list[dict[str, str]] = []

    def heard(self, key: str) -> list[str]:
        """Return the values that were told of a key so far."""
        try:
            while True:
                lines = self.listening.recv(4096).decode().split("\n")
                self.told.append(dict(line.split("=", 1) for line in lines))
        except BlockingIOError:
            return [one[key] for one in self.told if key in one]


async def test_systemd_is_told_all_along(tmp_path: Path, until: Until) -> None:
    """Ready with the ports, alive again and again, reloading and ready again, stopping; in that order."""
    manager = Manager(tmp_path / "notify")
    file = tmp_path / "agent.toml"
    file.write_text("")
    env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
    async with agent("--config", str(file), env=env) as running:
        await until(lambda: len(manager.heard("WATCHDOG")) >= 3)
        [status] = [one["STATUS"] for one in manager.told if "READY" in one]
        assert running.otlp.rsplit(":", 1)[1] in status
        assert any("ok" in one for one in manager.heard("STATUS"))
        running.process.send_signal(signal.SIGHUP)
        await until(lambda: len(manager.heard("READY")) == 2)
        assert int(manager.heard("MONOTONIC_USEC")[0]) > 0
        assert await running.end() == 0
    manager.heard("STOPPING")
    order = [next(iter(one)) for one in manager.told if next(iter(one)) != "WATCHDOG"]
    assert order == ["READY", "RELOADING", "READY", "STOPPING"]
    manager.listening.close()


async def test_hung_process_gives_no_sign_of_life(tmp_path: Path, until: Until) -> None:
    """While the agent stands still nothing is told; the manager will restart it."""
    manager = Manager(tmp_path / "notify")
    env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
    async with agent(env=env) as running:
        await until(lambda: manager.heard("WATCHDOG"))
        running.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(0.3)  # what was on its way
        before = len(manager.heard("WATCHDOG"))
        await asyncio.sleep(1.0)
        assert len(manager.heard("WATCHDOG")) == before
        running.process.send_signal(signal.SIGCONT)
        await until(lambda: len(manager.heard("WATCHDOG")) > before)
    manager.listening.close()


async def test_agent_tells_of_itself(until: Until) -> None:
    """Build, configuration, start, first export, pauses and queues are exported."""
    async with backend() as served, agent("--export", served.url) as running:
        await until(lambda: served.values("tailcause.agent.start.duration"))
        text = await scrape(running.metrics)
        assert await running.end() == 0
    [info] = {
        tuple(sorted(one.attributes.items())) for one in served.values("tailcause.agent.info")
    }
    attributes = dict(info)
    assert attributes["service.version"]
    assert re.fullmatch(r"[0-9a-f]{12}", str(attributes["tailcause.config.hash"]))
    first = served.values("tailcause.agent.first_export.duration")[0].value
    assert 0 < served.values("tailcause.agent.start.duration")[0].value < first
    assert served.values("tailcause.pipe.queue.length")
    [lags, _collections] = [
        float(count)
        for name in ("loop_lag", "gc_pause")
        for count in re.findall(
            rf"^tailcause_agent_{name}_seconds_count (\S+)$", text, re.MULTILINE
        )
    ]
    assert lags > 0


async def scrape(url: str) -> str:
    """Return a page of metrics once the loop was looked at."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(30):
        while True:
            async with session.get(url) as response:
                text = await response.text()
            if not re.search(r"loop_lag_seconds_count 0", text):
                return text
            await asyncio.sleep(0.1)


def command(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return subprocess.run(
        (*COMMAND, *words), capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, **env},
    )  # fmt: skip


@pytest.mark.parametrize("flag", ["--dry-run", "--check-config"])
def test_dry_run_shows_what_is_in_force(flag: str, tmp_path: Path) -> None:
    """What is printed is TOML that can be read back, from all three sources, and no secret is in it."""
    file = tmp_path / "agent.toml"
    file.write_text('interval = "2s"\n[headers]\nx-key = "geheim"\n')
    ended = command(
        "run", flag, "--config", str(file), "--forward", "https://me:geheim@example.org:4318",
        "--disable", "psi", TAILCAUSE_AGENT_PROCESS_NAMES="vllm",
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "geheim" not in ended.stdout
    found = tomllib.loads(ended.stdout)
    assert (found["interval"], found["process_names"], found["disable"]) == (2.0, ["vllm"], ["psi"])
    assert found["headers"] == {"x-key": "***"}
    assert "# sends spans to: https://***@example.org:4318" in ended.stdout
    assert re.search(r"^# collects: cpu, memory", ended.stdout, re.MULTILINE)
    assert "psi" not in re.findall(r"^# collects: (.*)$", ended.stdout, re.MULTILINE)[0]


def test_dry_run_of_a_bad_configuration(tmp_path: Path) -> None:
    """A mistake ends it with 2, and so does a certificate that is not there."""
    file = tmp_path / "agent.toml"
    file.write_text('forward = "https://example.org"\nforward_ca = "/none.pem"\n')
    ended = command("run", "--dry-run", "--config", str(file))
    assert ended.returncode == 2
    assert "/none.pem" in ended.stderr
    file.write_text("intervl = 1\n")
    ended = command("run", "--dry-run", "--config", str(file))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "did you mean 'interval'" in ended.stderr


def test_dry_run_reads_back(tmp_path: Path) -> None:
    """What a dry run prints is a configuration file that says the same."""
    first = command("run", "--dry-run").stdout
    file = tmp_path / "agent.toml"
    file.write_text(first)
    assert command("run", "--dry-run", "--config", str(file)).stdout == first
