"""Each collector's numbers on fixture hosts, and what it says where there are none."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.collectors.base import CollectorContext, NoData
from agent.collectors.cgroup import CgroupCollector
from agent.collectors.cpu import CpuCollector
from agent.collectors.memory import MemoryCollector
from agent.collectors.psi import PsiCollector
from agent.host.cgroup_walk import WalkLimits
from agent.host.paths import HostPaths
from agent.host.selection import Selection
from agent.telemetry.model import Sample, SignalState

Host = Callable[[str], HostPaths]

NOW = 1_796_109_000_000_000_000
BOOT = 1_796_108_400_000_000_000


def context(paths: HostPaths, limits: WalkLimits | None = None) -> CollectorContext:
    """Return a context with a standing clock."""
    return CollectorContext(paths, limits or WalkLimits(), now_unix_ns=lambda: NOW)


def values(samples: list[Sample], metric: str) -> dict[tuple[object, ...], float]:
    """Return a metric's values by the values of its attributes."""
    return {tuple(s.attributes.values()): s.value for s in samples if s.metric == metric}


def test_cpu_times_by_mode(host: Host) -> None:
    """Columns become seconds by mode; guest time is not counted twice."""
    samples = CpuCollector(context(host("hybrid"))).collect()
    ticks = os.sysconf("SC_CLK_TCK")
    assert values(samples, "system.cpu.time") == {
        ("user",): 55427 / ticks,
        ("nice",): 205 / ticks,
        ("system",): 12687 / ticks,
        ("idle",): 267274 / ticks,
        ("iowait",): 687 / ticks,
        ("interrupt",): (120 + 181) / ticks,
        ("steal",): 36 / ticks,
    }
    assert values(samples, "system.cpu.logical.count") == {(): 2}
    assert values(samples, "system.cpu.load_average.1m") == {(): 2.42}


def test_cpu_counters_start_at_boot(host: Host) -> None:
    """Counters of the kernel began when it booted."""
    [first, *_] = CpuCollector(context(host("hybrid"))).collect()
    assert (first.start_unix_ns, first.time_unix_ns) == (BOOT, NOW)


def test_memory_states_add_up(host: Host) -> None:
    """The states partition the installed memory; reclaimable slab counts as cached."""
    samples = MemoryCollector(context(host("v2"))).collect()
    states = values(samples, "system.memory.usage")
    assert sum(states.values()) == values(samples, "system.memory.limit")[()] == 24683656 * 1024
    assert states["cached",] == (1484200 + 71828) * 1024
    assert values(samples, "system.memory.linux.available") == {(): 23562512 * 1024}


def test_paging_counts_minor_faults_without_major_ones(host: Host) -> None:
    """The kernel's count of faults holds the major ones; swap that is not there has no state."""
    samples = MemoryCollector(context(host("v2"))).collect()
    assert values(samples, "system.paging.faults") == {("major",): 2749, ("minor",): 8107573}
    assert values(samples, "system.paging.operations") == {("in",): 12, ("out",): 3400}
    assert values(samples, "system.paging.usage") == {
        ("used",): 48576 * 1024,
        ("free",): 1000000 * 1024,
    }
    without = MemoryCollector(context(host("v1"))).collect()
    assert values(without, "system.paging.usage") == {}
    assert values(without, "system.paging.operations") == {}


def test_cpu_shares_are_of_the_time_between(host: Host, tmp_path: Path) -> None:
    """A mode's share is its part of the ticks since the collection before; the first has none."""
    shutil.copytree(host("hybrid").procfs, tmp_path / "proc")
    collector = CpuCollector(context(HostPaths(tmp_path / "proc", tmp_path)))
    assert values(collector.collect(), "system.cpu.utilization") == {}
    stat = tmp_path / "proc/stat"
    first, rest = stat.read_text().split("\n", 1)
    name, *ticks = first.split()
    grown = [60, 0, 20, 100, 0, 4, 6, 10, 0, 0]
    later = [int(tick) + more for tick, more in zip(ticks, grown, strict=True)]
    stat.write_text(f"{name} {' '.join(map(str, later))}\n{rest}")
    assert values(collector.collect(), "system.cpu.utilization") == {
        ("user",): 0.3,
        ("nice",): 0.0,
        ("system",): 0.1,
        ("idle",): 0.5,
        ("iowait",): 0.0,
        ("interrupt",): 0.05,
        ("steal",): 0.05,
    }
    assert values(collector.collect(), "system.cpu.utilization") == {}


def test_clocks_come_from_cpufreq_or_cpuinfo(host: Host) -> None:
    """Where there is no cpufreq the kernel's description of the CPUs has the clocks, or nobody."""

    def hz(layout: str) -> dict[tuple[object, ...], float]:
        return values(CpuCollector(context(host(layout))).collect(), "system.cpu.frequency")

    assert hz("v2") == {(0,): 1.2e9, (1,): 3.4e9}
    assert hz("hybrid") == {(0,): pytest.approx(2.596124e9), (1,): 2.6e9}
    assert hz("v1") == {}


def test_psi_seconds(host: Host) -> None:
    """Totals become seconds, without the meaningless `full` stall of the CPU."""
    assert values(PsiCollector(context(host("v2"))).collect(), "tailcause.psi.time") == {
        ("cpu", "some"): 9.350262,
        ("memory", "some"): 0.359829,
        ("memory", "full"): 0.356223,
        ("io", "some"): 4.219149,
        ("io", "full"): 3.856416,
    }


def test_psi_off_is_not_supported(host: Host) -> None:
    """A kernel without pressure files has no pressure, which is not a pressure of 0."""
    with pytest.raises(NoData) as caught:
        PsiCollector(context(host("v1"))).collect()
    assert caught.value.state is SignalState.NOT_SUPPORTED
    assert "psi=1" in caught.value.remedy


def test_missing_procfs_is_not_supported(tmp_path: Path) -> None:
    """Where procfs is not mounted the reason names the file and the flag."""
    paths = HostPaths(tmp_path, tmp_path)
    with pytest.raises(NoData, match="stat does not exist") as caught:
        CpuCollector(context(paths)).collect()
    assert "--path.procfs" in caught.value.remedy


def test_cgroup_samples_carry_path_and_container(host: Host) -> None:
    """Every sample of a container names the path and the container."""
    samples = CgroupCollector(context(host("hybrid"))).collect()
    throttled = {
        s.attributes["tailcause.cgroup.path"]: s
        for s in samples
        if s.metric == "tailcause.cgroup.cpu.cfs.throttled_time"
    }
    [path] = throttled.keys() - {"/"}
    assert throttled["/"].value == 0
    assert throttled[path].value == 32.43
    assert throttled[path].attributes["container.id"] == str(path).rpartition("/")[2]
    assert "container.id" not in throttled["/"].attributes


def test_cgroup_limits_exist_only_where_set(host: Host) -> None:
    """An unlimited cgroup has no limit at all."""
    samples = CgroupCollector(context(host("v2"))).collect()
    assert list(values(samples, "tailcause.cgroup.cpu.limit").values()) == [0.2]
    assert list(values(samples, "tailcause.cgroup.memory.limit").values()) == [536870912]


def test_cgroup_overflow_is_exported(host: Host) -> None:
    """Cgroups past the bound are counted in a sample, cumulatively."""
    collector = CgroupCollector(context(host("v2"), WalkLimits(cgroups=1)))
    first = values(collector.collect(), "tailcause.pipe.dropped")
    second = values(collector.collect(), "tailcause.pipe.dropped")
    assert 0 < first["cgroup", "too_many"] < second["cgroup", "too_many"]


def test_cgroup_follows_what_changes(host: Host, tmp_path: Path) -> None:
    """A collector sees new numbers, new cgroups and the end of old ones."""
    tree = tmp_path / "cgroup"
    shutil.copytree(host("v2").cgroup, tree)
    collector = CgroupCollector(context(HostPaths(host("v2").procfs, tree)))
    collector.collect()
    (tree / "system.slice/sshd.service/memory.current").write_text("8192\n")
    run_a_little(tree / "system.slice/sshd.service")
    shutil.copytree(tree / "system.slice/sshd.service", tree / "system.slice/cron.service")
    shutil.rmtree(tree / "kubepods.slice")
    assert values(collector.collect(), "container.memory.usage") == {
        ("/system.slice/sshd.service",): 8192,
        ("/system.slice/cron.service",): 8192,
    }


def run_a_little(cgroup: Path) -> None:
    """Let the CPU time of a cgroup grow."""
    stat = cgroup / "cpu.stat"
    before = int(stat.read_text().split()[1])
    stat.write_text(stat.read_text().replace(f"usage_usec {before}", f"usage_usec {before + 1}"))


def test_idle_cgroup_is_read_in_its_turn(host: Host, tmp_path: Path) -> None:
    """Where nothing runs, memory that the host takes back is seen within ten rounds; the CPU time is of now."""
    tree, clock = tmp_path / "cgroup", iter(range(NOW, NOW + 10**9))
    shutil.copytree(host("v2").cgroup, tree)
    paths = HostPaths(host("v2").procfs, tree)
    collector = CgroupCollector(replace(context(paths), now_unix_ns=lambda: next(clock)))
    collector.collect()
    (tree / "system.slice/sshd.service/memory.current").write_text("1024\n")
    rounds = [collector.collect() for _ in range(10)]
    usage = [values(one, "container.memory.usage")["/system.slice/sshd.service",] for one in rounds]
    assert usage[0] == 4096
    assert usage[-1] == 1024
    times = [
        {
            s.metric: s.time_unix_ns
            for s in one
            if "sshd" in str(s.attributes.get("tailcause.cgroup.path"))
        }
        for one in rounds[:2]
    ]
    assert times[0]["container.memory.usage"] == times[1]["container.memory.usage"]
    assert times[0]["container.cpu.time"] < times[1]["container.cpu.time"]
    assert all(len(one) == len(rounds[0]) for one in rounds)


def test_cgroup_that_runs_is_read_at_once(host: Host, tmp_path: Path) -> None:
    """As soon as its CPU time has moved, all of its numbers are new."""
    tree = tmp_path / "cgroup"
    shutil.copytree(host("v2").cgroup, tree)
    collector = CgroupCollector(context(HostPaths(host("v2").procfs, tree)))
    for size in ("1024", "2048", "512"):
        collector.collect()
        collector.collect()
        (tree / "system.slice/sshd.service/memory.current").write_text(f"{size}\n")
        run_a_little(tree / "system.slice/sshd.service")
        found = values(collector.collect(), "container.memory.usage")
        assert found["/system.slice/sshd.service",] == int(size)


def test_no_cgroups_is_not_supported(tmp_path: Path) -> None:
    """Without a mounted hierarchy the signal is absent, with what to do."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "mountinfo").write_text("27 1 254:0 / / rw - ext4 /dev/vda rw\n")
    with pytest.raises(NoData, match="no cgroup hierarchy"):
        CgroupCollector(context(HostPaths(tmp_path, tmp_path))).collect()


def test_cgroup_samples_name_disks_and_leave_some_out(host: Host) -> None:
    """Numbers of a device become its name, and the I/O of a loop device is not told twice."""
    samples = CgroupCollector(context(host("v2"))).collect()
    assert {
        (s.attributes["system.device"], s.attributes["disk.io.direction"]): s.value
        for s in samples
        if s.metric == "container.disk.io"
    } == {("vda", "read"): 78643200, ("vda", "write"): 1048576}


def test_container_uptime_is_of_its_oldest_process(host: Host) -> None:
    """A container is as old as its first process; other cgroups have no age."""
    later = BOOT + 3_600_000_000_000
    samples = CgroupCollector(replace(context(host("v2")), now_unix_ns=lambda: later)).collect()
    [uptime] = [s for s in samples if s.metric == "container.uptime"]
    assert "container.id" in uptime.attributes
    assert uptime.value == pytest.approx(3600 - 88100 / os.sysconf("SC_CLK_TCK"))


def test_cgroups_that_do_not_match_are_not_read(host: Host) -> None:
    """Globs choose the cgroups by path; `!` leaves out, and what lies below is found all the same."""

    def paths(*globs: str) -> set[object]:
        selected = replace(context(host("v2")), selection=Selection(cgroup_match=globs))
        samples = CgroupCollector(selected).collect()
        return {str(s.attributes["tailcause.cgroup.path"])[:9] for s in samples}

    assert paths("*") == {"/", "/kubepods", "/system.s"}
    assert paths("/kubepods.slice/*") == {"/kubepods"}
    assert paths("!/system.slice/*") == {"/", "/kubepods"}


def test_slow_files_keep_their_value_and_its_time(host: Host, tmp_path: Path) -> None:
    """What is not read in a round stays, with the time it was read at; its turn comes within ten."""
    shutil.copytree(host("v2").cgroup, tmp_path / "cgroup")
    leaf = next((tmp_path / "cgroup/kubepods.slice").glob("*/*/*"))
    clock = iter(range(1, 10_000))
    paths = HostPaths(host("v2").procfs, tmp_path / "cgroup")
    collector = CgroupCollector(CollectorContext(paths, now_unix_ns=lambda: next(clock)))

    def rss() -> Sample:
        found = [s for s in collector.collect() if s.metric == "container.memory.rss"]
        assert len(found) == 1
        return found[0]

    first = rss()
    (leaf / "memory.stat").write_text("anon 4096\n")
    later = [rss() for _ in range(10)]
    assert later[0] in (first, later[-1])
    assert (later[-1].value, later[-1].time_unix_ns > first.time_unix_ns) == (4096, True)
    assert {s.value for s in later} <= {first.value, 4096.0}
