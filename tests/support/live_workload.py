"""A real workload, load and fault for tests, each a process of its own."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TREES = ("cpu", "cpu,cpuacct", "cpuacct", "memory", "blkio", "unified")
BASE = Path("/sys/fs/cgroup")


def why_not_privileged() -> str:
    """Name the capability that is missing here, or nothing."""
    if os.geteuid() != 0:
        return "needs root (cgroups)"
    if not os.access(BASE, os.W_OK) and not any(os.access(BASE / t, os.W_OK) for t in TREES):
        return "needs writable cgroups"
    return ""


needs_cgroups = pytest.mark.skipif(bool(why_not_privileged()), reason=why_not_privileged())


def eventually(condition: Callable[[], bool], timeout_s: float = 30.0) -> bool:
    """Wait for a condition, on a busy machine too."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def command(*words: str) -> list[str]:
    """Build a `tailcause-workload` command line."""
    return [sys.executable, "-m", "kernels.cli", *words]


def run(*words: str, timeout_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run(
        command(*words), capture_output=True, text=True, timeout=timeout_s, check=False
    )


def group_directories(path: str) -> list[Path]:
    """Find a cgroup's directories by looking, not by asking the code under test."""
    trees = [BASE / tree for tree in TREES if (BASE / tree).is_dir()] or [BASE]
    return [tree / path.lstrip("/") for tree in trees if (tree / path.lstrip("/")).is_dir()]


def group_file(path: str, *names: str) -> str:
    """Read the first of these files that the group has in any tree."""
    for name in names:
        for directory in group_directories(path):
            if (directory / name).exists():
                return (directory / name).read_text()
    raise AssertionError(f"{path} has none of {names}")


def throttled_s(path: str) -> float:
    """Seconds that a group was throttled, straight from its cpu.stat."""
    stat = dict(map(str.split, group_file(path, "cpu.stat").splitlines()))
    if "throttled_time" in stat:
        return int(stat["throttled_time"]) / 1e9
    return int(stat["throttled_usec"]) / 1e6


def quota_text(path: str) -> str:
    """Read the CPU quota as the kernel writes it."""
    return group_file(path, "cpu.cfs_quota_us", "cpu.max").split()[0]


@dataclass
class Live:
    """A process with a first JSON line."""

    process: "subprocess.Popen[str]"
    first: dict[str, Any]
    log: Path

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """Signal it and wait."""
        self.process.send_signal(signum)
        return self.process.wait(60)

    def rest(self) -> list[dict[str, Any]]:
        """Give the JSON lines after the first, once it has ended."""
        assert self.process.stdout is not None
        return [json.loads(line) for line in self.process.stdout.read().splitlines()]


@contextmanager
def live(words: Sequence[str]) -> Iterator[Live]:
    """Start a process, wait for its first line, kill it at the end whatever happened."""
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, Path(log.name).read_text()[-2000:]
            yield Live(process, json.loads(line), Path(log.name))
        finally:
            process.kill()
            process.wait(30)
            if process.stdout:
                process.stdout.close()


@dataclass
class Workload:
    """A running `up`."""

    up: Live
    state: Path

    @property
    def cgroup(self) -> str:
        """The server's cgroup path."""
        path = self.up.first["cgroup"]
        assert isinstance(path, str)
        return path

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://{self.up.first['host']}:{self.up.first['port']}"

    def told(self) -> dict[str, Any]:
        """Read its workload.json."""
        content = json.loads((self.state / "workload.json").read_bytes())
        assert isinstance(content, dict)
        return content


@contextmanager
def workload(*words: str, prefix: Sequence[str] = ()) -> Iterator[Workload]:
    """Start `up` with a state folder and cgroup of its own."""
    with tempfile.TemporaryDirectory(prefix="tcw") as folder:
        state = Path(folder) / "state"
        name = Path(folder).name
        up = [*prefix, *command("up", "--state", str(state), "--port", "0", "--service", name)]
        with live([*up, *words]) as process:
            yield Workload(process, state)
            if process.process.poll() is None:
                process.stop()


@contextmanager
def load(url: str, rate: float = 20.0, seed: int = 1) -> Iterator[Live]:
    """Send load until the block ends."""
    words = ("load", "--url", url, "--rate", str(rate), "--duration", "1h", "--json")
    with live(command(*words, "--seed", str(seed))) as process:
        yield process


def gone(pid: int) -> bool:
    """Tell whether a process has ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def fault(running: Workload, name: str, *words: str) -> list[str]:
    """Build the command line of a fault that lasts until it is stopped."""
    return command("fault", name, "--state", str(running.state), "--for", "10m", *words)


def stop_well(injected: Live) -> dict[str, Any]:
    """End a fault politely; its last line says that all is undone."""
    assert injected.stop() == 0, injected.log.read_text()
    last = injected.rest()[-1]
    assert (last["event"], last["undone"]) == ("ended", True)
    return last
