"""Which hierarchy counts, and the paths behind ids, on trees of plain directories."""

from pathlib import Path

import pytest

from ebpf.cgroupids import MAX_DEPTH, CgroupPaths, find_hierarchy
from ebpf.errors import NotSupportedError
from ebpf.layout import Hierarchy

UNIFIED = "30 24 0:26 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw"
V1_CPU = "31 24 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:10 - cgroup cgroup rw,cpu"
V1_JOINED = "31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct"
V1_CPUSET = "32 24 0:28 / /sys/fs/cgroup/cpuset rw shared:11 - cgroup cgroup rw,cpuset"
V2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
ROOT = "24 1 254:0 / / rw,relatime - ext4 /dev/root rw"


def proc(tmp_path: Path, *mounts: str) -> Path:
    """Make a /proc that shows these mounts to us."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text("\n".join((ROOT, *mounts)) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("mounts", "hierarchy", "mount"),
    [
        ((V2,), Hierarchy.UNIFIED, "/sys/fs/cgroup"),
        ((UNIFIED, V1_CPU), Hierarchy.CPU_CONTROLLER, "/sys/fs/cgroup/cpu"),
        ((V1_CPU, UNIFIED), Hierarchy.CPU_CONTROLLER, "/sys/fs/cgroup/cpu"),
        ((V1_CPUSET, V1_JOINED), Hierarchy.CPU_CONTROLLER, "/sys/fs/cgroup/cpu,cpuacct"),
        ((V1_CPUSET, UNIFIED), Hierarchy.UNIFIED, "/sys/fs/cgroup/unified"),
    ],
    ids=["v2", "hybrid", "hybrid the other way", "v1", "cpuset is not cpu"],
)
def test_hierarchy(
    tmp_path: Path, mounts: tuple[str, ...], hierarchy: Hierarchy, mount: str
) -> None:
    """The hierarchy with the CPU controller counts, wherever it is mounted."""
    found = find_hierarchy(proc(tmp_path, *mounts))
    assert (hierarchy, Path(mount)) == (found.hierarchy, found.mount)


def test_no_cgroups_is_said(tmp_path: Path) -> None:
    """A machine without cgroups is not supported, in words."""
    with pytest.raises(NotSupportedError, match="no cgroup hierarchy"):
        find_hierarchy(proc(tmp_path))


def inode(path: Path) -> int:
    """Return what the kernel would call the cgroup."""
    return path.stat().st_ino


def test_paths_of_ids(tmp_path: Path) -> None:
    """Ids are inode numbers; the mount itself is the root."""
    (tmp_path / "pods/one").mkdir(parents=True)
    paths = CgroupPaths(tmp_path)
    paths.walk()
    assert paths.path(inode(tmp_path)) == "/"
    assert paths.path(inode(tmp_path / "pods/one")) == "/pods/one"


def test_unknown_until_walked(tmp_path: Path) -> None:
    """A cgroup made after a walk is known after the next."""
    paths = CgroupPaths(tmp_path)
    paths.walk()
    (tmp_path / "late").mkdir()
    before = paths.path(inode(tmp_path / "late"))
    paths.walk()
    assert (before, paths.path(inode(tmp_path / "late"))) == (None, "/late")


def test_remembered_until_forgotten(tmp_path: Path) -> None:
    """The name of a cgroup that is gone is kept until it is dropped: its counters outlive it."""
    (tmp_path / "gone").mkdir()
    identity = inode(tmp_path / "gone")
    paths = CgroupPaths(tmp_path)
    paths.walk()
    (tmp_path / "gone").rmdir()
    paths.walk()
    remembered, alive = paths.path(identity), paths.alive()
    paths.forget(identity)
    assert (remembered, paths.path(identity)) == ("/gone", None)
    assert {inode(tmp_path)} == alive


def test_depth_is_bounded(tmp_path: Path) -> None:
    """A tree deeper than any real one is cut, not followed for ever."""
    deep = tmp_path.joinpath(*["d"] * (MAX_DEPTH + 1))
    deep.mkdir(parents=True)
    paths = CgroupPaths(tmp_path)
    paths.walk()
    assert paths.path(inode(deep.parent)) is not None
    assert paths.path(inode(deep)) is None


def test_links_are_not_followed(tmp_path: Path) -> None:
    """v1 names a joined hierarchy by links as well; the directories count once."""
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    paths = CgroupPaths(tmp_path)
    paths.walk()
    assert paths.path(inode(tmp_path / "real")) == "/real"
