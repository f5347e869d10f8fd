"""Faults of memory and disk on a real server: what the kernel counts and a clock says."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.supervisor.cgroups import CgroupError
from kernels.supervisor.diskio import disk_under
from kernels.workload.cache import default_cache_dir
from tests.support.live_workload import (
    Workload,
    eventually,
    fault,
    gone,
    group_file,
    live,
    load,
    needs_cgroups,
    run,
    stop_well,
    workload,
)
from tests.support.memory_cgroup import why_no_memory_limit
from tests.support.workload_calls import SMALL, answers_within

ADAPTERS = ("--set", "adapters=24", "--set", "adapter_kib=1024")
NO_LIMIT = ("9223372036854771712", "max")

pytestmark = [
    pytest.mark.privileged,
    needs_cgroups,
    pytest.mark.skipif(bool(why_no_memory_limit()), reason=why_no_memory_limit()),
]


def why_no_disk() -> str:
    """Name what is missing for reads that reach a disk, or nothing."""
    folder = default_cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        disk_under(folder)
    except CgroupError:
        return "needs the cache folder on a file system with a disk of its own"
    return ""


@pytest.fixture(scope="module")
def running() -> Iterator[Workload]:
    """Share one workload that reads adapters through the page cache, under a light load."""
    with workload("--restart", *SMALL, *ADAPTERS) as up, load(up.url, rate=12):
        yield up


def limit(running: Workload) -> str:
    """Read the memory limit as the kernel writes it."""
    return group_file(running.cgroup, "memory.limit_in_bytes", "memory.max").strip()


def hits(running: Workload) -> int:
    """Read how often the limit was hit."""
    text = group_file(running.cgroup, "memory.failcnt", "memory.events")
    words = text.split()
    return int(words[words.index("max") + 1]) if "max" in words else int(text)


def kills(running: Workload) -> int:
    """Read how many processes of the group the kernel has killed for want of memory."""
    words = group_file(running.cgroup, "memory.oom_control", "memory.events").split()
    return int(words[words.index("oom_kill") + 1])


def file_bytes(running: Workload) -> int:
    """Read how much of the page cache the group is charged for."""
    stat = dict(map(str.split, group_file(running.cgroup, "memory.stat").splitlines()))
    return int(stat.get("total_cache", stat.get("file", "0")))


def test_the_memory_limit_is_hit_and_lifted(running: Workload) -> None:
    """The kernel counts the hits, and the page cache has to go."""
    assert eventually(lambda: file_bytes(running) > 20 << 20)

    with live(fault(running, "memory-limit", "--intensity", "6")) as injected:
        told = injected.first["parameters"]
        assert limit(running) == str(told["limit_bytes"] // 4096 * 4096)
        before = hits(running)
        assert eventually(lambda: hits(running) > before + 20)
        assert file_bytes(running) < told["file_bytes_before"] / 2
        stop_well(injected)

    assert limit(running) in NO_LIMIT


def test_kill_9_of_the_injector_lifts_the_memory_limit(running: Workload) -> None:
    """The reaper writes the old value back."""
    assert eventually(lambda: file_bytes(running) > 20 << 20)

    with live(fault(running, "memory-limit")) as injected:
        assert limit(running) not in NO_LIMIT

        injected.stop(signal.SIGKILL)

        assert eventually(lambda: limit(running) in NO_LIMIT)


def test_the_kernel_kills_the_server_and_it_is_started_again(running: Workload) -> None:
    """By the kernel's count; then another process serves, and the limit is gone."""
    before, server = kills(running), running.told()["server_pid"]

    with live(fault(running, "oom-kill")) as injected:
        assert injected.first["parameters"]["killed_pid"] == server
        assert gone(server)
        assert kills(running) > before
        assert eventually(lambda: running.told()["server_pid"] != server)
        assert limit(running) in NO_LIMIT
        stop_well(injected)

    assert eventually(lambda: answers_within(running.url, 5.0))


READER = """
import mmap, os, sys, time
path, groups = sys.argv[1], sys.argv[2:]
for group in groups:
    open(group, "w").write("0")
buffer = mmap.mmap(-1, 1 << 20)
at = os.open(path, os.O_RDONLY | os.O_DIRECT)
started = time.monotonic()
for _ in range(8):
    assert os.preadv(at, [buffer], 0) == 1 << 20
print(time.monotonic() - started)
"""


def read_in_group(running: Workload) -> float:
    """Seconds that 8 MiB take when a process in the server's group reads them past the page cache."""
    adapter = next(default_cache_dir().glob("adapters-24x1024k/*.bin"))
    groups = [str(d / "cgroup.procs") for d in disk_groups(running)]
    done = subprocess.run(
        [sys.executable, "-c", READER, str(adapter), *groups],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout)


def disk_groups(running: Workload) -> list[Path]:
    """Find the group where reads are limited: of blkio in v1, of everything in v2."""
    base, path = Path("/sys/fs/cgroup"), running.cgroup.lstrip("/")
    return [base / "blkio" / path] if (base / "blkio").is_dir() else [base / path]


@pytest.mark.skipif(os.geteuid() == 0 and bool(why_no_disk()), reason=why_no_disk())
def test_the_disk_gives_no_more_than_the_limit_until_it_is_lifted() -> None:
    """Whoever reads in the server's group waits for its share, by a clock of our own."""
    options = (*SMALL, *ADAPTERS, "--set", "adapter_direct=on")
    with workload(*options) as direct, load(direct.url, rate=12):
        with live(fault(direct, "slow-disk", "--intensity", "6")) as injected:
            allowed = injected.first["parameters"]["read_bytes_per_s"]
            slow_s = read_in_group(direct)
            assert slow_s > 0.5 * (8 << 20) / allowed

            injected.stop(signal.SIGKILL)

            name = ("blkio.throttle.read_bps_device", "io.max")
            assert eventually(
                lambda: "rbps" not in group_file(direct.cgroup, *name).replace("rbps=max", "")
            )
            if (Path("/sys/fs/cgroup/blkio")).is_dir():
                assert eventually(lambda: group_file(direct.cgroup, *name).strip() == "")
        assert eventually(lambda: read_in_group(direct) < slow_s)
        refused = run("fault", "memory-limit", "--state", str(direct.state))
        assert refused.returncode == 2
        assert "adapters=64" in refused.stderr.splitlines()[-1]
