"""Reading kernel files cheaply: descriptors, unchanged texts, and directories that are not listed again."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent.host.cgroup_walk import CgroupWalk, WalkLimits
from agent.host.files import KernelFiles
from agent.host.hierarchies import Hierarchy


def walk_of(*mounts: Path) -> CgroupWalk:
    """Return a walk over trees at these mount points."""
    trees = [Hierarchy(1, frozenset((str(n),)), mount, "/") for n, mount in enumerate(mounts)]
    return CgroupWalk(trees, WalkLimits())


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the directories that are listed from now on."""
    found: list[str] = []
    scandir = os.scandir

    def recorded(path: str) -> object:
        found.append(str(path))
        return scandir(path)

    monkeypatch.setattr("agent.host.cgroup_walk.os.scandir", recorded)
    return found


def test_text_that_has_not_changed_is_parsed_once_more_at_most(tmp_path: Path) -> None:
    """An idle cgroup costs a read; a text that changes is parsed again, also when as long as before."""
    file = tmp_path / "cpu.stat"
    file.write_text("a 1\n")
    texts: list[str] = []

    def parse(text: str) -> str:
        texts.append(text)
        return text.upper()

    files = KernelFiles()
    assert [files.parsed(str(file), parse) for _ in range(5)] == ["A 1\n"] * 5
    assert len(texts) == 2
    file.write_text("a 2\n")
    assert files.parsed(str(file), parse) == "A 2\n"


def test_a_text_that_cannot_be_parsed_is_tried_again(tmp_path: Path) -> None:
    """What was garbage once is an error each time, until it is none."""
    file = tmp_path / "n"
    file.write_text("x")
    files = KernelFiles()
    for _ in range(3):
        with pytest.raises(ValueError, match="invalid literal"):
            files.parsed(str(file), int)
    file.write_text("7")
    assert files.parsed(str(file), int) == 7


def test_files_that_are_not_kept_leave_no_descriptor(tmp_path: Path) -> None:
    """A slow file is opened, read and closed."""
    (tmp_path / "a").write_text("text")
    files = KernelFiles()
    assert files.read(str(tmp_path / "a"), keep=False) == "text"
    assert len(files) == 0


def test_without_descriptors_fewer_are_kept(tmp_path: Path) -> None:
    """At the process's limit on open files every file is still read, by keeping fewer of them."""
    for n in range(60):
        (tmp_path / str(n)).write_text(str(n))
    program = f"""
import resource
from agent.host.files import KernelFiles
files = KernelFiles(1000)
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
for _ in range(3):
    assert [files.read(f"{tmp_path}/{{n}}") for n in range(60)] == [str(n) for n in range(60)]
print(0 < len(files) < 32)
"""
    done = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 32


def test_half_of_the_descriptors_stay_free(tmp_path: Path) -> None:
    """The kernel's files leave room for sockets and probes, and a service's low limit is raised first."""
    for n in range(60):
        (tmp_path / str(n)).write_text(str(n))
    program = f"""
import resource
from agent.host.files import KernelFiles, raise_descriptor_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 80))
few = KernelFiles(1000)
for n in range(60):
    few.read(f"{tmp_path}/{{n}}")
raise_descriptor_limit()
print(len(few), resource.getrlimit(resource.RLIMIT_NOFILE))
raise_descriptor_limit(50)
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    done = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, check=False
    )
    assert done.stdout == "20 (80, 80)\n(80, 80)\n", done.stderr


def test_directories_are_not_listed_again(tmp_path: Path, listed: list[str]) -> None:
    """While nothing changes the cgroups are known without a look into a directory; leaves never need one."""
    (tmp_path / "a/b").mkdir(parents=True)
    walk = walk_of(tmp_path)
    assert walk.paths() == ["/", "/a", "/a/b"]
    if tmp_path.stat().st_nlink < 2:
        pytest.skip("needs a file system that counts directories, as the kernel's cgroups are")
    assert listed == [str(tmp_path), f"{tmp_path}/a"]
    for _ in range(9):
        assert walk.paths() == ["/", "/a", "/a/b"]
    assert len(listed) == 2


def test_new_and_removed_cgroups_are_seen_at_once(tmp_path: Path) -> None:
    """A child of a leaf, a second child, and the end of both show in the next round."""
    (tmp_path / "a").mkdir()
    walk = walk_of(tmp_path)
    assert walk.paths() == ["/", "/a"]
    (tmp_path / "a/b").mkdir()
    assert walk.paths() == ["/", "/a", "/a/b"]
    (tmp_path / "c").mkdir()
    assert walk.paths() == ["/", "/a", "/c", "/a/b"]
    shutil.rmtree(tmp_path / "a")
    assert walk.paths() == ["/", "/c"]


def test_cgroup_that_replaces_another_is_seen(tmp_path: Path) -> None:
    """The link count stays the same: whoever finds the old one gone says so, and ten rounds do it too."""
    (tmp_path / "a").mkdir()
    walk = walk_of(tmp_path)
    walk.paths()
    (tmp_path / "b").mkdir()
    (tmp_path / "a").rmdir()
    walk.suspect()
    assert walk.paths() == ["/", "/b"]
    (tmp_path / "c").mkdir()
    (tmp_path / "b").rmdir()
    assert ["/", "/c"] in [walk.paths() for _ in range(11)]


def test_cgroup_of_another_tree_is_seen_within_ten_rounds(tmp_path: Path) -> None:
    """Leaves are watched in the first tree alone; what only another tree has comes a little later."""
    (tmp_path / "cpu/a").mkdir(parents=True)
    (tmp_path / "memory/a").mkdir(parents=True)
    walk = walk_of(tmp_path / "cpu", tmp_path / "memory")
    assert walk.paths() == ["/", "/a"]
    (tmp_path / "memory/a/b").mkdir()
    assert ["/", "/a", "/a/b"] in [walk.paths() for _ in range(11)]
