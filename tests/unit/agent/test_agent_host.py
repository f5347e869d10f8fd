"""Hierarchies, cgroups, containers and processes, read from fixture hosts."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.host import processes
from agent.host.cgroups import CgroupTree, WalkLimits
from agent.host.containers import Identity, identify
from agent.host.files import KernelFiles
from agent.host.hierarchies import Hierarchy, discover
from agent.host.paths import HostPaths
from agent.host.psi import parse_pressure

Host = Callable[[str], HostPaths]

CONTAINER = "4f1c0d9a8b7e6f5d4c3b2a1908f7e6d5c4b3a29180f7e6d5c4b3a2918070f6e5"
OTHER = "0" * 63 + "a"
POD = "8a5f3c1e-2b4d-4c6e-9f80-1a2b3c4d5e6f"
POD_ = POD.replace("-", "_")
CONTAINER_PATH = {
    "hybrid": f"/docker/{CONTAINER}",
    "v1": f"/kubepods/burstable/pod{POD}/{CONTAINER}",
    "v2": "/kubepods.slice/kubepods-burstable.slice/"
    f"kubepods-burstable-pod{POD_}.slice/cri-containerd-{CONTAINER}.scope",
}


def tree_of(paths: HostPaths, limits: WalkLimits | None = None) -> CgroupTree:
    """Return a tree over a fixture host."""
    return CgroupTree(discover(paths), KernelFiles(), limits)


@pytest.mark.parametrize("layout", ["v1", "v2", "hybrid"])
def test_layout_is_recognised(host: Host, layout: str) -> None:
    """The mount table tells v1, v2 and hybrid apart."""
    assert discover(host(layout)).mode == layout


def test_bind_mount_is_seen_once(host: Host) -> None:
    """A second mount of the same v1 tree adds no hierarchy, and its escaped name no harm."""
    trees = discover(host("v1")).trees
    assert len(trees) == 3
    assert trees[0].mount == host("v1").cgroup / "cpu,cpuacct"


def test_no_hierarchy_is_none(tmp_path: Path) -> None:
    """A host without cgroups has layout `none`."""
    mountinfo = tmp_path / "1" / "mountinfo"
    mountinfo.parent.mkdir()
    mountinfo.write_text("27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\ngarbage\n")
    assert discover(HostPaths(tmp_path, tmp_path)).mode == "none"


@pytest.mark.parametrize(
    ("root", "path", "expected"),
    [
        ("/", "/a/b", "/a/b"),
        ("/docker/x", "/docker/x/app", "/app"),
        ("/docker/x", "/docker/x", "/"),
        ("/docker/x", "/docker/xy", None),
    ],
)
def test_path_below_a_mounted_subtree(root: str, path: str, expected: str | None) -> None:
    """A container that sees only its subtree knows its cgroups by what lies below it."""
    tree = Hierarchy(2, frozenset(("v2",)), Path("/sys/fs/cgroup"), root)
    assert tree.below_mount(path) == expected


@pytest.mark.parametrize("layout", ["v2", "hybrid"])
def test_container_numbers_agree_across_layouts(host: Host, layout: str) -> None:
    """The same container reads the same in v2 and hybrid: throttling in s, limit in CPUs, bytes."""
    reading = tree_of(host(layout)).read(CONTAINER_PATH[layout])
    assert {key: round(value, 6) for key, value in reading.stats.items()} == {
        "cpu_time_s": pytest.approx(111.319494, abs=1e-5),
        "cfs_periods": 410,
        "cfs_throttled_periods": 400,
        "cfs_throttled_s": 32.43,
        "cpu_limit": 0.2,
        "memory_usage_bytes": 165924864,
        "memory_limit_bytes": 536870912,
        "oom_kills": 2,
    }
    assert reading.stalled_s == {
        ("cpu", "some"): 32.43,
        ("cpu", "full"): 31.99,
        ("memory", "some"): 0.0015,
        ("memory", "full"): 0.0012,
        ("io", "some"): 0.07,
        ("io", "full"): 0.065,
    }


def test_v1_has_no_pressure_and_no_false_limit(host: Host) -> None:
    """Without a v2 tree there is no pressure, and v1's huge number is no memory limit."""
    reading = tree_of(host("v1")).read(CONTAINER_PATH["v1"])
    assert reading.stalled_s == {}
    assert "memory_limit_bytes" not in reading.stats
    assert reading.stats["cpu_limit"] == 1.5


def test_v2_cgroup_without_cpu_controller_has_no_throttling(host: Host) -> None:
    """Where cpu.stat lacks the periods, throttling is absent, not 0; `max` is no limit."""
    reading = tree_of(host("v2")).read("/system.slice/sshd.service")
    assert dict(reading.stats) == {"cpu_time_s": 2.5, "memory_usage_bytes": 4096}


def test_root_has_no_full_cpu_stall(host: Host) -> None:
    """The kernel's constant 0 for the whole machine is not passed on."""
    stalls = tree_of(host("hybrid")).read("/").stalled_s
    assert ("cpu", "full") not in stalls
    assert stalls["cpu", "some"] == 9.350262


def test_walk_merges_hierarchies(host: Host) -> None:
    """Every path is read once, whatever number of trees it is in; empty ones are left out."""
    assert [reading.path for reading in tree_of(host("hybrid")).read_all()] == [
        "/",
        f"/docker/{CONTAINER}",
    ]


def test_walk_is_bounded_in_count_and_depth(host: Host) -> None:
    """What lies past the bounds is counted, and shallow cgroups go first."""
    few = tree_of(host("v2"), WalkLimits(cgroups=2))
    assert [reading.path for reading in few.read_all()] == ["/"]
    assert few.overflow > 0
    flat = tree_of(host("v2"), WalkLimits(depth=1))
    assert [reading.path for reading in flat.read_all()] == ["/"]
    assert flat.overflow == 2


def test_unreadable_numbers_are_counted(host: Host, tmp_path: Path) -> None:
    """A file with something else in it is counted; the other files are read all the same."""
    shutil.copytree(host("v2").cgroup, tmp_path / "cgroup")
    leaf = tmp_path / "cgroup" / CONTAINER_PATH["v2"].lstrip("/")
    (leaf / "cpu.max").write_text("nonsense\n")
    (leaf / "io.pressure").write_text("some total=x\n")
    tree = tree_of(HostPaths(host("v2").procfs, tmp_path / "cgroup"))
    reading = tree.read(CONTAINER_PATH["v2"])
    assert "cpu_limit" not in reading.stats
    assert reading.stats["cfs_periods"] == 410
    assert tree.read_errors == 2


def test_removed_cgroup_is_forgotten(host: Host, tmp_path: Path) -> None:
    """The descriptors of a cgroup that is gone are closed."""
    shutil.copytree(host("hybrid").cgroup, tmp_path / "cgroup")
    files = KernelFiles()
    tree = CgroupTree(discover(HostPaths(host("hybrid").procfs, tmp_path / "cgroup")), files)
    assert len(list(tree.read_all())) == 2
    before = len(files)
    for name in ("cpu", "cpuacct", "memory", "unified"):
        shutil.rmtree(tmp_path / "cgroup" / name / "docker")
    assert len(list(tree.read_all())) == 1
    assert 0 < len(files) < before


def test_files_keep_a_bounded_number_open(tmp_path: Path) -> None:
    """Past the bound the least recently read file is closed, and reads stay right."""
    for index in range(5):
        (tmp_path / str(index)).write_text(f"text {index}")
    files = KernelFiles(max_open=2)
    before = len(list(Path("/proc/self/fd").iterdir()))
    texts = [files.read(str(tmp_path / str(index))) for index in (0, 1, 2, 3, 4, 0)]
    assert texts == ["text 0", "text 1", "text 2", "text 3", "text 4", "text 0"]
    assert len(files) == 2
    assert len(list(Path("/proc/self/fd").iterdir())) - before == 2
    files.close()


def test_files_are_read_afresh(tmp_path: Path) -> None:
    """An open descriptor shows what the file holds now."""
    file = tmp_path / "cpu.stat"
    file.write_text("1")
    files = KernelFiles()
    files.read(str(file))
    file.write_text("22")
    assert files.read(str(file)) == "22"
    files.close()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"/docker/{CONTAINER}", Identity(CONTAINER)),
        (f"/system.slice/docker-{CONTAINER}.scope", Identity(CONTAINER)),
        (f"/machine.slice/libpod-{CONTAINER}.scope/container", Identity(CONTAINER)),
        (f"/machine.slice/libpod-conmon-{CONTAINER}.scope", Identity()),
        (CONTAINER_PATH["v1"], Identity(CONTAINER, POD)),
        (CONTAINER_PATH["v2"], Identity(CONTAINER, POD)),
        (f"/kubepods.slice/kubepods-pod{POD_}.slice/crio-{CONTAINER}.scope", Identity(CONTAINER, POD)),
        (
            f"/kubepods.slice/kubepods-pod{POD_}.slice/crio-conmon-{CONTAINER}.scope",
            Identity("", POD),
        ),
        (
            f"/system.slice/kubepods-besteffort-pod{POD_}.slice:cri-containerd:{CONTAINER}",
            Identity(CONTAINER, POD),
        ),
        (
            f"/docker/{OTHER}/kubelet/kubepods/besteffort/pod{POD}/{CONTAINER}",
            Identity(CONTAINER, POD),
        ),
        (f"/kubepods/pod{POD.replace('-', '')}/{CONTAINER}", Identity(CONTAINER, POD.replace("-", ""))),
        ("/user.slice/user-0.slice", Identity()),
        ("/podman/abcdef", Identity()),
        (f"/x{CONTAINER}", Identity()),
        ("/", Identity()),
    ],
)  # fmt: skip
def test_identity_from_a_path(path: str, expected: Identity) -> None:
    """Docker, containerd, cri-o, podman and kind name their containers and pods in the path."""
    assert identify(path) == expected


@pytest.mark.parametrize("layout", ["v1", "v2", "hybrid"])
def test_process_is_placed_in_its_container(host: Host, layout: str) -> None:
    """A process's cgroup is the path that the cgroup collector reports."""
    place = processes.place(host(layout), discover(host(layout)), 4242)
    assert place.cgroup == CONTAINER_PATH[layout]


def test_process_with_one_cgroup_per_controller(host: Host) -> None:
    """With the cpu controller at the root, another hierarchy's path tells more than `/`."""
    place = processes.place(host("hybrid"), discover(host("hybrid")), 4300)
    assert place.cgroup == "/user.slice/user-0.slice"


def test_start_ticks_survive_any_process_name(host: Host) -> None:
    """A name with blanks and parentheses does not shift the columns."""
    assert processes.start_ticks(host("hybrid"), 4242) == 88100


def test_nested_pid_namespace_is_seen(host: Host) -> None:
    """A process that knows itself by another pid is told apart."""
    assert processes.in_nested_pid_namespace(host("hybrid"), 4400)
    assert not processes.in_nested_pid_namespace(host("hybrid"), 4242)


def test_pressure_without_full_line() -> None:
    """Kernels before 5.13 write no `full` line for the CPU."""
    assert parse_pressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n") == {"some": 1.5}
