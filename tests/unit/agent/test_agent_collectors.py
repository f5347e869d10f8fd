"""Each collector's numbers on fixture hosts, and what it says where there are none."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.collectors.base import CollectorContext, NoData
from agent.collectors.cgroup import CgroupCollector
from agent.collectors.cpu import CpuCollector
from agent.collectors.memory import MemoryCollector
from agent.collectors.psi import PsiCollector
from agent.host.cgroups import WalkLimits
from agent.host.paths import HostPaths
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
    assert values(samples, "system.memory.available") == {(): 23562512 * 1024}
    assert values(samples, "system.paging.faults.major") == {(): 2749}


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
    shutil.copytree(tree / "system.slice/sshd.service", tree / "system.slice/cron.service")
    shutil.rmtree(tree / "kubepods.slice")
    assert values(collector.collect(), "container.memory.usage") == {
        ("/system.slice/sshd.service",): 8192,
        ("/system.slice/cron.service",): 8192,
    }


def test_no_cgroups_is_not_supported(tmp_path: Path) -> None:
    """Without a mounted hierarchy the signal is absent, with what to do."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "mountinfo").write_text("27 1 254:0 / / rw - ext4 /dev/vda rw\n")
    with pytest.raises(NoData, match="no cgroup hierarchy"):
        CgroupCollector(context(HostPaths(tmp_path, tmp_path))).collect()
