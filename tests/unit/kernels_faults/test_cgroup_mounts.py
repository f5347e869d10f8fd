"""Where the cgroup hierarchies are found."""

from pathlib import Path

from kernels.supervisor.mounts import Layout, discover
from tests.support.cgroup_trees import HYBRID_SPLIT, V1_JOINED, V2, machine, v2_group


def test_split_v1_controllers_beside_a_v2_tree_are_hybrid(tmp_path: Path) -> None:
    """Each v1 controller has its own mount, and the v2 tree is found as well."""
    found = discover(machine(tmp_path, HYBRID_SPLIT))

    base = tmp_path / "sys/fs/cgroup"
    assert found.layout is Layout.HYBRID
    assert found.v1_trees == (base / "cpu", base / "cpuacct", base / "memory")
    assert found.v2 == base / "unified"


def test_joined_v1_controllers_are_one_tree(tmp_path: Path) -> None:
    """`cpu,cpuacct` under one mount is created and entered once."""
    found = discover(machine(tmp_path, V1_JOINED))

    base = tmp_path / "sys/fs/cgroup"
    assert found.layout is Layout.V1
    assert found.v1_trees == (base / "cpu,cpuacct", base / "memory")


def test_pure_v2_offers_what_its_root_lists(tmp_path: Path) -> None:
    """Only controllers that we want and the root has can be enabled."""
    root = machine(tmp_path, V2)
    v2_group(root / "sys/fs/cgroup", "cpuset cpu io memory pids")

    found = discover(root)

    assert found.layout is Layout.V2
    assert found.v2_controllers == frozenset({"cpu", "io", "memory"})


def test_v2_controllers_bound_to_v1_are_not_offered_twice(tmp_path: Path) -> None:
    """A controller lives in one hierarchy; a mount in v1 wins."""
    root = machine(tmp_path, HYBRID_SPLIT)
    v2_group(root / "sys/fs/cgroup/unified", "cpu hugetlb")

    assert discover(root).v2_controllers == frozenset()


def test_no_mount_is_no_layout(tmp_path: Path) -> None:
    """A container without cgroup mounts is told apart."""
    assert discover(machine(tmp_path, "")).layout is Layout.NONE


def test_blanks_in_mount_points_are_unescaped(tmp_path: Path) -> None:
    """The kernel writes a blank as an octal escape."""
    root = machine(tmp_path, "")
    line = r"29 22 0:26 / /mnt/my\040groups rw - cgroup2 cgroup2 rw"
    (root / "proc/self/mountinfo").write_text(line + "\n")

    assert discover(root).v2 == root / "mnt/my groups"
