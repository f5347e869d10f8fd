"""A fault that a workload was not started for says in one line how to start it."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kernels.supervisor.state import ReplicaState, WorkloadState, write_state

PLAIN = WorkloadState(
    pid=1,
    server_pid=1,
    port=9,
    cgroup=None,
    service="chat",
    model="tiny",
    revision="0" * 40,
    version="1.0.0",
    settings={},
    replicas=(ReplicaState("chat-0", 1, 9, None),),
)


def refuse(folder: Path, name: str, *words: str) -> str:
    """Run a fault that cannot start; its last line."""
    done = subprocess.run(
        [sys.executable, "-m", "kernels.cli", "fault", name, "--state", str(folder), *words],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert '"active"' not in done.stdout
    return [line for line in done.stderr.splitlines() if line.startswith("tailcause-workload")][-1]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("net-loss", "up --network"),
        ("net-rate", "up --network"),
        ("net-delay", "up --network"),
        ("lock-contention", "up --hook"),
        ("gc-pause", "up --hook"),
        ("slow-sql", "tenant_db=postgresql"),
        ("cache-outage", "prompt_cache=redis"),
        ("oom-kill", "up --restart"),
        ("memory-limit", "as root"),
        ("slow-disk", "as root"),
        ("gpu-hung", "--gpus FILE"),
        ("surge", "no workload answers"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, name: str, reason: str) -> None:
    """Exit code 2, nothing injected."""
    write_state(tmp_path, PLAIN)

    assert reason in refuse(tmp_path, name)


def test_a_replica_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    """The names of all of them."""
    write_state(tmp_path, PLAIN)

    assert "choose one of chat-0" in refuse(tmp_path, "hang", "--replica", "chat-7")


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "cannot read --gpus"), ("driver 1\n", "has no GPU")]
)
def test_a_scenario_without_gpus_is_refused(
    tmp_path: Path, content: str | None, reason: str
) -> None:
    """A file that is missing, and one of a node without any."""
    write_state(tmp_path, PLAIN)
    file = tmp_path / "gpus"
    if content is not None:
        file.write_text(content)

    assert reason in refuse(tmp_path, "gpu-lost", "--gpus", str(file))


def test_a_redis_on_another_machine_is_left_alone(tmp_path: Path) -> None:
    """Nothing answers at the address, or not from a process of ours."""
    settings = {"prompt_cache": "redis://127.0.0.1:9/0"}
    write_state(tmp_path, msgspec.structs.replace(PLAIN, settings=settings))

    assert "no Redis answers" in refuse(tmp_path, "cache-outage")
