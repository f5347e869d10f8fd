"""Hierarchies, cgroups, containers and processes, read from fixture hosts."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.host import processes
from agent.host.cgroup_walk import WalkLimits
from agent.host.cgroups import CgroupReading, CgroupTree
from agent.host.files import KernelFiles
from agent.host.hierarchies import Hierarchy, discover
from agent.host.paths import HostPaths
from agent.host.psi import parse_pressure

Host = Callable[[str], HostPaths]

CONTAINER = "4f1c0d9a8b7e6f5d4c3b2a1908f7e6d5c4b3a29180f7e6d5c4b3a2918070f6e5"
POD = "8a5f3c1e-2b4d-4c6e-9f80-1a2b3c4d5e6f"
POD_ = POD.replace("-", "_")
CONTAINER_PATH = {
    "hybrid": f"/docker/{CONTAINER}",
    "v1": f"/kubepods/burstable/pod{POD}/{CONTAINER}",
    "v2": "/kubepods.slice/kubepods-burstable.slice/"
    f"kubepods-burstable-pod{POD_}.slice/cri-containerd-{CONTAINER}.scope",
}

CPU_TIME = ("cpu_time_s",)
V2_ALONE: dict[str, dict[tuple[str, ...], float]] = {
    "hybrid": {},
    "v2": {
        ("memory_events", "low"): 0,
        ("memory_events", "high"): 0,
        ("memory_events", "oom"): 2,
        ("memory_events", "oom_group_kill"): 0,
        ("pages_scanned",): 4200,
        ("pages_reclaimed",): 3900,
        ("io_operations", "7:0", "write"): 0,
        ("io_throttled_s", "254:0"): 0.25,
    },
}


def both(reading: CgroupReading) -> dict[tuple[str, ...], float]:
    """Return the numbers of every round and those of slow files."""
    return {**reading.stats, **(reading.slow or {})}


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
    assert len(trees) == 4
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
    assert {key: round(value, 6) for key, value in both(reading).items()} | {CPU_TIME: 0} == {
        CPU_TIME: 0,
        ("cpu_mode_s", "user"): 100,
        ("cpu_mode_s", "system"): pytest.approx(11.32, abs=0.001),
        ("cpu_weight",): 50,
        ("cpu_limit",): 0.2,
        ("cfs_periods",): 410,
        ("cfs_throttled_periods",): 400,
        ("cfs_throttled_s",): 32.43,
        ("memory_usage_bytes",): 165924864,
        ("memory_limit_bytes",): 536870912,
        ("memory_rss_bytes",): 121634816,
        ("memory_cache_bytes",): 41943040,
        ("memory_swap_bytes",): 40960,
        ("memory_working_set_bytes",): 165924864 - 20971520,
        ("oom_kills",): 2,
        ("memory_events", "max"): 12,
        ("refaults", "anon"): 3,
        ("refaults", "file"): 1101,
        ("faults", "minor"): 51000,
        ("faults", "major"): 14,
        ("io_bytes", "254:0", "read"): 78643200,
        ("io_bytes", "254:0", "write"): 1048576,
        ("io_bytes", "7:0", "read"): 49152,
        ("io_bytes", "7:0", "write"): 0,
        ("io_operations", "254:0", "read"): 640,
        ("io_operations", "254:0", "write"): 16,
        ("io_operations", "7:0", "read"): 12,
        ("threads",): 6,
        ("threads_limit",): 512,
        ("threads_refused",): 0,
        ("stalled_s", "cpu", "some"): 32.43,
        ("stalled_s", "cpu", "full"): 31.99,
        ("stalled_s", "memory", "some"): 0.0015,
        ("stalled_s", "memory", "full"): 0.0012,
        ("stalled_s", "io", "some"): 0.07,
        ("stalled_s", "io", "full"): 0.065,
        **V2_ALONE[layout],
    }
    assert reading.stats[CPU_TIME] == pytest.approx(111.319494, abs=1e-5)


def test_v1_has_no_pressure_and_no_false_limit(host: Host) -> None:
    """Without a v2 tree there is no pressure, and v1's huge number is no memory limit."""
    reading = tree_of(host("v1")).read(CONTAINER_PATH["v1"])
    assert not [key for key in reading.stats if key[0] == "stalled_s"]
    assert ("memory_limit_bytes",) not in both(reading)
    assert reading.stats["cpu_limit",] == 1.5


def test_old_v1_kernel_says_the_same_by_other_names(host: Host) -> None:
    """Before 5.9 refaults were of files alone, and older blkio has no recursive files."""
    found = both(tree_of(host("v1")).read(CONTAINER_PATH["v1"]))
    assert found["refaults", "file"] == 1101
    assert ("refaults", "anon") not in found
    assert found["io_bytes", "254:0", "read"] == 78643200
    assert found["cpu_weight",] == 100
    assert ("memory_swap_bytes",) not in found


def test_v1_disk_that_was_never_counted_is_absent(host: Host, tmp_path: Path) -> None:
    """Kernels that count no block I/O without a limit write zeros, which are not passed on."""
    shutil.copytree(host("hybrid").cgroup, tmp_path / "cgroup")
    [file] = (tmp_path / "cgroup/blkio").glob("docker/*/*io_service_bytes_recursive")
    file.write_text(
        "254:0 Read 0\n254:0 Write 0\n254:0 Total 0\n8:0 Read 0\n8:0 Write 4\nTotal 4\n"
    )
    found = both(
        tree_of(HostPaths(host("hybrid").procfs, tmp_path / "cgroup")).read(
            CONTAINER_PATH["hybrid"]
        )
    )
    assert {key[1:]: value for key, value in found.items() if key[0] == "io_bytes"} == {
        ("8:0", "read"): 0,
        ("8:0", "write"): 4,
    }


def test_v2_cgroup_without_cpu_controller_has_no_throttling(host: Host) -> None:
    """Where cpu.stat lacks the periods, throttling is absent, not 0; `max` is no limit."""
    reading = tree_of(host("v2")).read("/system.slice/sshd.service")
    assert both(reading) == {
        ("cpu_time_s",): 2.5,
        ("cpu_mode_s", "user"): 1.5,
        ("cpu_mode_s", "system"): 1.0,
        ("memory_usage_bytes",): 4096,
    }


def test_root_has_no_full_cpu_stall(host: Host) -> None:
    """The kernel's constant 0 for the whole machine is not passed on."""
    stats = tree_of(host("hybrid")).read("/").stats
    assert ("stalled_s", "cpu", "full") not in stats
    assert stats["stalled_s", "cpu", "some"] == 9.350262


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
    assert ("cpu_limit",) not in reading.stats
    assert reading.stats["cfs_periods",] == 410
    assert tree.read_errors == 2


def test_removed_cgroup_is_forgotten(host: Host, tmp_path: Path) -> None:
    """The descriptors of a cgroup that is gone are closed."""
    shutil.copytree(host("hybrid").cgroup, tmp_path / "cgroup")
    files = KernelFiles()
    tree = CgroupTree(discover(HostPaths(host("hybrid").procfs, tmp_path / "cgroup")), files)
    assert len(list(tree.read_all())) == 2
    before = len(files)
    for name in ("cpu", "cpuacct", "memory", "blkio", "pids", "unified"):
        shutil.rmtree(tmp_path / "cgroup" / name / "docker")
    assert len(list(tree.read_all())) == 1
    assert 0 < len(files) < before


def test_files_keep_a_bounded_number_open(tmp_path: Path) -> None:
    """Past the bound files are opened for each read, and reads stay right."""
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
