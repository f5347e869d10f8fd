"""Each undo action reaches its goal, and a goal reached already is no failure."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kernels.supervisor.actions import (
    AskSupervisor,
    KillProcess,
    RemoveCgroup,
    RemoveFile,
    StampTime,
    WriteFile,
    perform,
)
from kernels.supervisor.processes import start_ticks
from kernels.supervisor.reaper import undo_all

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_a_value_is_written_back(tmp_path: Path) -> None:
    """A shorter value leaves nothing of the longer one."""
    file = tmp_path / "cpu.cfs_quota_us"
    file.write_text("20000")

    perform(WriteFile(str(file), "-1"))

    assert file.read_text() == "-1"


def test_writing_to_a_file_that_is_gone_creates_nothing(tmp_path: Path) -> None:
    """The cgroup of a workload that ended needs no quota back."""
    perform(WriteFile(str(tmp_path / "gone"), "-1"))

    assert list(tmp_path.iterdir()) == []


def test_removing_twice_is_fine(tmp_path: Path) -> None:
    """The file may have gone by itself."""
    file = tmp_path / "control.sock"
    file.touch()

    perform(RemoveFile(str(file)))
    perform(RemoveFile(str(file)))

    assert not file.exists()


def test_the_end_is_stamped_into_the_truth(tmp_path: Path) -> None:
    """The other fields stay and the mode is private."""
    file = tmp_path / "truth.json"
    file.write_text('{"fault": "x", "ended_unix_s": null}')
    before = time.time()

    perform(StampTime(str(file), "ended_unix_s"))

    truth = json.loads(file.read_text())
    assert truth["fault"] == "x"
    assert before <= truth["ended_unix_s"] <= time.time()
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_process_that_was_meant_is_killed() -> None:
    """Pid and start time agree."""
    process = subprocess.Popen(SLEEPER)
    ticks = start_ticks(process.pid)
    assert ticks is not None

    perform(KillProcess(process.pid, ticks))

    assert process.wait(10) == -9


def test_a_reused_pid_is_spared() -> None:
    """Another start time means another process."""
    process = subprocess.Popen(SLEEPER)
    try:
        perform(KillProcess(process.pid, (start_ticks(process.pid) or 0) - 1))

        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_a_dead_process_has_no_start_time() -> None:
    """A zombie counts as gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert start_ticks(process.pid) is None

    process.wait()


def test_groups_are_removed_from_the_leaves_up(tmp_path: Path) -> None:
    """An ancestor that a neighbour uses stays."""
    leaf = tmp_path / "tailcause/ab12/chat"
    (leaf / "inner").mkdir(parents=True)
    (tmp_path / "tailcause/neighbour").mkdir()

    perform(RemoveCgroup((str(leaf),), (str(leaf.parent), str(leaf.parent.parent))))

    assert [path.name for path in (tmp_path / "tailcause").iterdir()] == ["neighbour"]


def test_a_supervisor_is_asked_and_waited_for(tmp_path: Path) -> None:
    """The request goes out as one JSON line."""
    path = str(tmp_path / "control.sock")
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def answer() -> None:
            client, _ = server.accept()
            with client, client.makefile("rb") as lines:
                heard.append(lines.readline())
                client.sendall(b"{}\n")

        thread = threading.Thread(target=answer)
        thread.start()
        perform(AskSupervisor(path, {"command": "deploy"}, timeout_s=10))
        thread.join(10)

    assert heard == [b'{"command":"deploy"}\n']


def test_a_supervisor_that_is_gone_needs_no_answer(tmp_path: Path) -> None:
    """A socket file without a listener is a run that is over."""
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))

    perform(AskSupervisor(str(path), {}))
    perform(AskSupervisor(str(tmp_path / "gone"), {}))


def test_one_failure_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the result says that not all was undone."""
    file = tmp_path / "file"
    file.touch()

    complete = undo_all([RemoveFile(str(file)), RemoveFile(str(tmp_path))])

    assert not complete
    assert not file.exists()
    assert "undo failed" in caplog.text
