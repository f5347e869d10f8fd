"""Capabilities really go, for children too, and the host's cgroup names are really seen from a container's."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.capabilities import NEEDED, needed

pytestmark = pytest.mark.privileged

_GIVE_UP = """
import json, subprocess, sys, threading
from agent.capabilities import effective, give_up, needed
before = effective()
keep = [] if sys.argv[1] == "none" else needed(probes=sys.argv[1] == "probes", ports=[4318])
left = give_up(keep)
status = subprocess.run(("cat", "/proc/self/status"), capture_output=True, text=True).stdout
of_child = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff"))
of_thread = []
thread = threading.Thread(target=lambda: of_thread.append(effective()))
thread.start(); thread.join()
try:
    give_up(needed(probes=True, ports=[80]))
finally:
    print(json.dumps([before, left, effective(), of_thread[0], int(of_child, 16)]))
"""

_JOIN = """
import sys
from pathlib import Path
from agent.host.paths import HostPaths
from agent.privileges import join_host_cgroups
path = lambda: Path("/proc/self/cgroup").read_text().splitlines()[-1]
inside = path()
print(inside, join_host_cgroups(HostPaths(Path(sys.argv[1]))), path())
"""


def python(code: str, *words: str, before: tuple[str, ...] = ()) -> str:
    """Run a piece of Python and return what it printed."""
    return subprocess.run(
        (*before, sys.executable, "-c", code, *words),
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip


@pytest.mark.parametrize("kind", ["none", "plain", "probes"])
def test_capabilities_are_given_up_for_good(kind: str) -> None:
    """What is left is what is needed and was there; nothing brings more back, threads and children follow."""
    before, left, now, of_thread, of_child = json.loads(python(_GIVE_UP, kind))
    names = [] if kind == "none" else needed(probes=kind == "probes", ports=[4318])
    expected = before & sum(1 << one.number for one in names)
    assert [left, now, of_thread, of_child] == [expected] * 4
    assert before & ~expected  # there was something to give up


def test_every_capability_is_named_as_the_kernel_does() -> None:
    """The table's numbers are the kernel's."""
    shown = subprocess.run(
        ("capsh", f"--decode={sum(1 << one.number for one in NEEDED):x}"),
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    names = shown.strip().split("=")[1].split(",")
    assert sorted(name.upper() for name in names) == sorted(one.name for one in NEEDED)


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """Return a new cgroup of the unified hierarchy."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    root = next(Path(fields[1]) for fields in mounts if fields[2] == "cgroup2")
    made = root / f"tailcause-test-{os.getpid()}"
    made.mkdir()
    yield made
    made.rmdir()


def test_host_cgroups_are_seen_from_a_container(cgroup: Path, tmp_path: Path) -> None:
    """In a cgroup namespace of its own the agent is at `/`; then it has the name that the host knows."""
    (tmp_path / "1").symlink_to(f"/proc/{os.getpid()}")  # stands for the host's first process
    enter = f'echo $$ > {cgroup}/cgroup.procs; exec unshare --cgroup "$@"'
    shown = python(_JOIN, str(tmp_path), before=("sh", "-c", enter, "sh"))
    assert shown.split() == ["0::/", "True", f"0::/{cgroup.name}"]
