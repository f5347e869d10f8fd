"""The reaper undoes what its owner did, however the owner ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels.supervisor.actions import RemoveFile, WriteFile
from kernels.supervisor.processes import start_ticks
from kernels.supervisor.reaper import Reaper

OWNER = """
import sys, time
from kernels.supervisor.actions import RemoveFile, WriteFile
from kernels.supervisor.reaper import Reaper
reaper = Reaper.start()
reaper.add(WriteFile(sys.argv[1], "first"))
reaper.add(WriteFile(sys.argv[1], "second"))
reaper.forget(reaper.add(RemoveFile(sys.argv[1])))
print(reaper.pid, flush=True)
time.sleep(60)
"""


def eventually(condition: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    """Wait for a condition, on a busy machine too."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Make a file that an undo action changes."""
    file = tmp_path / "value"
    file.write_text("changed")
    return file


def start_owner(target: Path) -> tuple["subprocess.Popen[bytes]", int]:
    """Start an owner in a process of its own; it tells its reaper's pid."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(target)], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    return owner, int(owner.stdout.readline())


def end(owner: "subprocess.Popen[bytes]") -> None:
    """Kill and close."""
    owner.kill()
    owner.wait()
    if owner.stdout:
        owner.stdout.close()


def test_kill_9_of_the_owner_undoes_last_first(target: Path) -> None:
    """The oldest action has the last word, forgotten ones none, and the reaper leaves."""
    owner, reaper_pid = start_owner(target)

    end(owner)

    assert eventually(lambda: target.read_text() == "first")
    assert eventually(lambda: start_ticks(reaper_pid) is None)


def test_signals_do_not_stop_the_reaper(target: Path) -> None:
    """Ctrl-C and a polite kill of everything leave it in place, from its first moment on."""
    owner, reaper_pid = start_owner(target)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(reaper_pid, signum)
    assert target.read_text() == "changed"

    end(owner)

    assert eventually(lambda: target.read_text() == "first")


def test_it_has_a_session_of_its_own(target: Path) -> None:
    """A kill of the owner's process group does not reach it."""
    owner, reaper_pid = start_owner(target)

    session = os.getsid(reaper_pid)
    end(owner)

    assert session == reaper_pid


def test_release_undoes_nothing(target: Path) -> None:
    """A clean end tells the reaper that nothing is left to do."""
    reaper = Reaper.start()
    reaper.add(WriteFile(str(target), "undone"))

    reaper.release()

    assert target.read_text() == "changed"


def test_undo_waits_for_the_reaper_to_finish(target: Path) -> None:
    """The normal end takes the same way as the violent one."""
    reaper = Reaper.start()
    reaper.add(WriteFile(str(target), "undone"))

    assert reaper.undo()
    assert target.read_text() == "undone"


def test_undo_tells_when_something_is_left(tmp_path: Path) -> None:
    """A folder cannot be removed as a file."""
    reaper = Reaper.start()
    reaper.add(RemoveFile(str(tmp_path)))

    assert not reaper.undo()


def test_a_killed_reaper_is_replaced_by_its_owner(target: Path) -> None:
    """The owner keeps the list too and undoes by itself."""
    reaper = Reaper.start()
    reaper.add(WriteFile(str(target), "undone"))
    os.kill(reaper.pid, signal.SIGKILL)

    assert reaper.undo()
    assert target.read_text() == "undone"
