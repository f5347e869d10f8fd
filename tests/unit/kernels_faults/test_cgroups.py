"""Files read and written for one cgroup, on copies of the three layouts."""

from pathlib import Path

import pytest

from kernels.supervisor.cgroups import Cgroup, CgroupError, CpuQuota, CpuStat
from kernels.supervisor.mounts import discover
from tests.support.cgroup_trees import HYBRID_SPLIT, V1_JOINED, V2, machine, v2_group


@pytest.fixture
def v1(tmp_path: Path) -> Cgroup:
    """Make a cgroup on a v1 machine, with the files of cpu and cpuacct."""
    cgroup = Cgroup(discover(machine(tmp_path, V1_JOINED)), "/tailcause/chat")
    cgroup.create()
    cpu = cgroup.directories[0]
    (cpu / "cpu.cfs_quota_us").write_text("-1\n")
    (cpu / "cpu.cfs_period_us").write_text("100000\n")
    (cpu / "cpu.stat").write_text("nr_periods 41\nnr_throttled 40\nthrottled_time 2500000000\n")
    (cpu / "cpuacct.usage").write_text("7500000000\n")
    return cgroup


@pytest.fixture
def v2(tmp_path: Path) -> Cgroup:
    """Make a cgroup on a v2 machine."""
    root = machine(tmp_path, V2)
    top = v2_group(root / "sys/fs/cgroup")
    v2_group(top / "tailcause")
    leaf = v2_group(top / "tailcause/chat")
    (leaf / "cpu.max").write_text("max 100000\n")
    (leaf / "cpu.stat").write_text(
        "usage_usec 7500000\nuser_usec 7000000\nsystem_usec 500000\n"
        "nr_periods 41\nnr_throttled 40\nthrottled_usec 2500000\n"
    )
    cgroup = Cgroup(discover(root), "/tailcause/chat")
    cgroup.create()
    return cgroup


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_throttling_is_read_in_seconds(layout: str, request: pytest.FixtureRequest) -> None:
    """Nanoseconds of v1 and microseconds of v2 give the same figure."""
    cgroup: Cgroup = request.getfixturevalue(layout)

    assert cgroup.cpu_stat() == CpuStat(periods=41, throttled_periods=40, throttled_s=2.5)


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_usage_is_read_in_seconds(layout: str, request: pytest.FixtureRequest) -> None:
    """CPU time comes from cpuacct in v1 and cpu.stat in v2."""
    cgroup: Cgroup = request.getfixturevalue(layout)

    assert cgroup.cpu_usage_s() == 7.5


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_a_quota_reads_back(layout: str, request: pytest.FixtureRequest) -> None:
    """What was set is what is read, and no limit is None."""
    cgroup: Cgroup = request.getfixturevalue(layout)
    assert cgroup.quota() == CpuQuota(None, 100_000)

    cgroup.set_quota(CpuQuota(20_000, 100_000))

    assert cgroup.quota() == CpuQuota(20_000, 100_000)


def test_v2_enables_controllers_from_the_top_down(v2: Cgroup) -> None:
    """Every group above the leaf hands the controllers on; the leaf, with processes, does not."""
    leaf = v2.directories[0]
    controls = [d / "cgroup.subtree_control" for d in (leaf.parents[1], leaf.parent, leaf)]

    assert [file.read_text() for file in controls] == ["+memory", "+memory", "\n"]


def test_enabled_controllers_are_left_alone(tmp_path: Path) -> None:
    """A group that systemd has set up is not written to."""
    root = machine(tmp_path, V2)
    top = v2_group(root / "sys/fs/cgroup", enabled="cpu io memory pids")
    v2_group(top / "chat")

    Cgroup(discover(root), "/chat").create()

    assert (top / "cgroup.subtree_control").read_text() == "cpu io memory pids\n"


def test_hybrid_enters_every_tree(tmp_path: Path) -> None:
    """The pid goes into cpu, cpuacct, memory and the v2 tree, so PSI joins throttling."""
    cgroup = Cgroup(discover(machine(tmp_path, HYBRID_SPLIT)), "/tailcause/chat")
    cgroup.create()
    for file in cgroup.procs_files:
        file.write_text("")

    cgroup.enter(4242)

    assert [file.read_text() for file in cgroup.procs_files] == ["4242"] * 4
    assert cgroup.pids() == frozenset({4242})


def test_own_ancestors_are_removable_and_foreign_ones_are_not(tmp_path: Path) -> None:
    """A group of the system that stood there before stays."""
    hierarchies = discover(machine(tmp_path, V1_JOINED))
    base = tmp_path / "sys/fs/cgroup"
    for tree in ("cpu,cpuacct", "memory"):
        (base / tree / "system.slice").mkdir()
        (base / tree / "tailcause").mkdir()

    ours = Cgroup(hierarchies, "/tailcause/ab12/chat").removable_ancestors()
    foreign = Cgroup(hierarchies, "/system.slice/new/chat").removable_ancestors()

    assert [str(d.relative_to(base / "memory")) for d in ours[2:]] == [
        "tailcause/ab12",
        "tailcause",
    ]
    assert [d.name for d in foreign] == ["new", "new"]


@pytest.mark.parametrize("path", ["chat", "/", "", "/../etc", "/a/../../b"])
def test_a_path_that_leaves_the_tree_is_refused(path: str, tmp_path: Path) -> None:
    """Only groups below the mount can be named."""
    with pytest.raises(CgroupError, match="must start with /"):
        Cgroup(discover(machine(tmp_path, V2)), path)


def test_a_quota_under_the_kernels_minimum_is_refused(v1: Cgroup) -> None:
    """The kernel would say no more than `Invalid argument`."""
    with pytest.raises(CgroupError, match="minimum"):
        v1.set_quota(CpuQuota(500))


def test_a_missing_controller_says_what_to_do(tmp_path: Path) -> None:
    """A v2 tree that does not hand out cpu cannot take a quota."""
    root = machine(tmp_path, V2)
    v2_group(root / "sys/fs/cgroup", "io pids")

    with pytest.raises(CgroupError, match="cpu controller"):
        Cgroup(discover(root), "/chat").quota()


def test_no_mounted_hierarchy_says_what_to_do(tmp_path: Path) -> None:
    """A container without cgroup mounts gets a reason."""
    with pytest.raises(CgroupError, match="mount one"):
        Cgroup(discover(machine(tmp_path, "")), "/chat").create()
