"""Limits on memory and disk, on copies of both cgroup interfaces, and a process that is stopped exactly."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.supervisor.actions import ContinueProcess, perform
from kernels.supervisor.cgroups import Cgroup, CgroupError
from kernels.supervisor.diskio import DiskGroup, disk_under
from kernels.supervisor.memory import MemoryGroup, MemoryUse
from kernels.supervisor.mounts import discover
from kernels.supervisor.namespaces import RemoveNetwork, RunInNamespace
from kernels.supervisor.processes import start_ticks, stop_exact
from tests.support.cgroup_trees import HYBRID_SPLIT, V2, machine, v2_group

BLKIO = "36 31 0:33 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio\n"


@pytest.fixture
def v1(tmp_path: Path) -> Cgroup:
    """Lay out a v1 group with memory and blkio."""
    root = machine(tmp_path, HYBRID_SPLIT + BLKIO)
    memory = root / "sys/fs/cgroup/memory/chat"
    memory.mkdir()
    for name, text in {
        "memory.limit_in_bytes": "9223372036854771712\n",
        "memory.usage_in_bytes": "300\n",
        "memory.stat": "cache 1\nrss 2\ntotal_cache 100\ntotal_rss 200\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    }.items():
        (memory / name).write_text(text)
    blkio = root / "sys/fs/cgroup/blkio/chat"
    blkio.mkdir()
    (blkio / "blkio.throttle.read_bps_device").write_text("")
    return Cgroup(discover(root), "/chat")


@pytest.fixture
def v2(tmp_path: Path) -> Cgroup:
    """Lay out a v2 group."""
    root = machine(tmp_path, V2)
    top = v2_group(root / "sys/fs/cgroup")
    group = v2_group(top / "chat")
    for name, text in {
        "memory.max": "max\n",
        "memory.current": "300\n",
        "memory.stat": "anon 200\nfile 100\n",
        "memory.events": "low 0\nhigh 0\nmax 7\noom 3\noom_kill 3\n",
        "io.max": "",
    }.items():
        (group / name).write_text(text)
    return Cgroup(discover(root), "/chat")


@pytest.mark.parametrize(("layout", "unlimited"), [("v1", "-1"), ("v2", "max")])
def test_a_memory_limit_is_set_and_put_back(
    layout: str, unlimited: str, request: pytest.FixtureRequest
) -> None:
    """No limit reads as the text that means no limit."""
    memory = MemoryGroup(request.getfixturevalue(layout))

    before = memory.limit_text()
    memory.set_limit(4096)
    limited = memory.limit_file.read_text()
    memory.lift_limit(before)

    assert (before, limited, memory.limit_file.read_text()) == (unlimited, "4096", unlimited)


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_what_is_kept_and_who_was_killed(layout: str, request: pytest.FixtureRequest) -> None:
    """File pages can be taken back, the rest cannot."""
    memory = MemoryGroup(request.getfixturevalue(layout))

    assert memory.use() == MemoryUse(total=300, files=100)
    assert (memory.use().kept, memory.kills()) == (200, 3)


@pytest.mark.parametrize(
    ("layout", "limited", "lifted"),
    [("v1", "254:0 5000", "254:0 0"), ("v2", "254:0 rbps=5000", "254:0 rbps=max")],
)
def test_reads_are_limited_in_the_words_of_the_interface(
    layout: str, limited: str, lifted: str, request: pytest.FixtureRequest
) -> None:
    """Bytes a second of one disk."""
    group = DiskGroup(request.getfixturevalue(layout), "254:0")

    group.set_read_limit(5000)

    assert group.limit_file.read_text() == limited
    assert group.no_limit_text == lifted


def test_a_controller_that_is_nowhere_is_named(tmp_path: Path) -> None:
    """The machine has v1 without blkio, and a v2 tree that offers nothing."""
    cgroup = Cgroup(discover(machine(tmp_path, HYBRID_SPLIT)), "/chat")

    with pytest.raises(CgroupError, match="io controller"):
        DiskGroup(cgroup, "254:0")


def test_memory_in_a_file_system_is_no_disk() -> None:
    """A tmpfs has a number that no disk has."""
    with pytest.raises(CgroupError, match="no disk of its own"):
        disk_under(Path("/proc"))


def test_a_process_is_stopped_and_goes_on() -> None:
    """It stands still when the call returns, by the kernel's state letter; a reused pid is spared."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        ticks = start_ticks(process.pid) or 0

        assert not stop_exact(process.pid, ticks - 1)
        assert stop_exact(process.pid, ticks)
        info = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG)
        assert info is not None
        assert info.si_status == signal.SIGSTOP

        perform(ContinueProcess(process.pid, ticks))
        assert os.waitid(os.P_PID, process.pid, os.WCONTINUED) is not None
    finally:
        process.kill()
        process.wait()

    assert not stop_exact(process.pid, ticks)


def test_a_namespace_that_is_gone_needs_no_undo() -> None:
    """Nor does a link."""
    perform(RunInNamespace("tailcause-none", ("false",)))
    perform(RemoveNetwork("tc-none", ("tailcause-none",)))
