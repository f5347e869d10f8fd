"""Processes that are watched: their numbers against the kernel's, their ends, and the bounds."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.collectors.base import CollectorContext, NoData
from agent.collectors.process import ProcessCollector
from agent.host import process_stat
from agent.host.paths import HostPaths
from agent.host.process_stat import Switches
from agent.host.selection import Selection
from agent.host.watched import MAX_PROCESSES, NamedProcesses, WatchedProcesses
from agent.telemetry.model import Sample

Host = Callable[[str], HostPaths]

BOOT = 1_796_108_400_000_000_000
NOW = BOOT + 3_600_000_000_000


def of_live(*pids: int) -> ProcessCollector:
    """Return a collector that watches processes of this machine."""
    return ProcessCollector(CollectorContext(serving_pids=lambda: pids))


def values(samples: list[Sample], metric: str, *keys: str) -> dict[tuple[object, ...], float]:
    """Return a metric's values by the values of some attributes."""
    return {
        tuple(s.attributes.get(key) for key in keys): s.value for s in samples if s.metric == metric
    }


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """Return a process that sleeps until it is told to end."""
    with subprocess.Popen(("sleep", "300")) as process:
        yield process
        process.kill()


def test_numbers_of_a_process(host: Host) -> None:
    """The columns become base units, with the process's pid, name, cgroup and container."""
    context = CollectorContext(
        host("hybrid"), now_unix_ns=lambda: NOW, serving_pids=lambda: (4242, 4242)
    )
    samples = ProcessCollector(context).collect()
    ticks = os.sysconf("SC_CLK_TCK")
    assert values(samples, "process.cpu.time", "cpu.mode") == {
        ("user",): 310 / ticks,
        ("system",): 45 / ticks,
    }
    assert values(samples, "process.memory.usage") == {(): 21000 * os.sysconf("SC_PAGE_SIZE")}
    assert values(samples, "process.memory.virtual") == {(): 812000000}
    assert values(samples, "process.thread.count") == {(): 6}
    assert values(samples, "process.unix.file_descriptor.count") == {(): 3}
    assert values(samples, "process.paging.faults", "system.paging.fault.type") == {
        ("minor",): 4567,
        ("major",): 2,
    }
    assert values(samples, "process.disk.io", "disk.io.direction") == {
        ("read",): 78643200,
        ("write",): 1048576,
    }
    first = samples[0]
    assert first.attributes["process.pid"] == 4242
    assert first.attributes["process.executable.name"] == "serve (1) x"
    assert str(first.attributes["tailcause.cgroup.path"]).startswith("/docker/4f1c")
    assert first.attributes["container.id"] == str(first.attributes["tailcause.cgroup.path"])[8:]
    assert first.start_unix_ns == BOOT + 88100 * 1_000_000_000 // ticks


def test_live_numbers_are_the_kernels() -> None:
    """Of this very process: memory as statm says, CPU time as the clock says, its own files."""
    samples = of_live(os.getpid()).collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    [usage] = values(samples, "process.memory.usage").values()
    assert usage == pytest.approx(resident, rel=0.5)
    used_s = sum(values(samples, "process.cpu.time", "cpu.mode").values())
    assert 0 < used_s <= time.process_time() + 0.05
    [files] = values(samples, "process.unix.file_descriptor.count").values()
    assert abs(files - len(list(Path("/proc/self/fd").iterdir()))) <= 5
    [threads] = values(samples, "process.thread.count").values()
    assert abs(threads - len(list(Path("/proc/self/task").iterdir()))) <= 2
    name = Path("/proc/self/exe").readlink().name
    assert {s.attributes["process.executable.name"] for s in samples} == {name}


def test_process_that_ends_is_gone(sleeper: "subprocess.Popen[bytes]") -> None:
    """After its end a process has no numbers, not old ones; the others go on."""
    collector = of_live(sleeper.pid, os.getpid())
    assert len(values(collector.collect(), "process.memory.usage", "process.pid")) == 2
    sleeper.kill()
    sleeper.wait()
    assert values(collector.collect(), "process.memory.usage", "process.pid").keys() == {
        (os.getpid(),)
    }


def test_pid_that_is_used_again_is_another_process(host: Host, tmp_path: Path) -> None:
    """A later start time means another process: its counters start then."""
    stat = (host("v1").procfs / "4242/stat").read_text()
    process = tmp_path / "4242"
    process.mkdir()
    (tmp_path / "stat").write_text("btime 1796108400\n")
    (process / "comm").write_text("one\n")
    (process / "stat").write_text(stat)
    (process / "task").mkdir()
    context = CollectorContext(
        HostPaths(tmp_path, tmp_path), now_unix_ns=lambda: NOW, serving_pids=lambda: (4242,)
    )
    collector = ProcessCollector(context)
    first = collector.collect()
    (process / "comm").write_text("two\n")
    (process / "stat").write_text(stat.replace(" 88100 ", " 99100 "))
    second = collector.collect()
    assert [s[0].attributes["process.executable.name"] for s in (first, second)] == ["one", "two"]
    assert first[0].start_unix_ns < second[0].start_unix_ns


def test_switches_are_of_all_threads() -> None:
    """A thread that sleeps a known number of times shows, though it is not the first thread."""
    switches = Switches()
    go, done = threading.Event(), threading.Event()
    naps = 61

    def nap() -> None:
        go.wait()
        for _ in range(naps):
            time.sleep(0.001)
        done.set()
        go.clear()
        end.wait()

    end = threading.Event()
    thread = threading.Thread(target=nap)
    thread.start()
    try:
        assert switches.read(Path("/proc/self"))
        assert (switches.voluntary, switches.involuntary) == (0, 0)
        go.set()
        done.wait()
        switches.read(Path("/proc/self"))
        assert switches.voluntary >= naps
    finally:
        end.set()
        thread.join()
    before = switches.voluntary
    switches.read(Path("/proc/self"))
    assert switches.voluntary >= before  # the end of a thread takes nothing back


def test_named_processes_are_found(sleeper: "subprocess.Popen[bytes]") -> None:
    """A configured name finds its process among all of the machine's, and loses it at its end."""
    find = NamedProcesses(Path("/proc"), frozenset(("sleep",)))

    def eventually(wanted: bool) -> bool:
        return any((sleeper.pid in find()) is wanted for _ in range(70))

    assert eventually(wanted=True)
    sleeper.kill()
    sleeper.wait()
    assert eventually(wanted=False)


def test_scan_looks_at_a_bounded_number_of_new_processes(tmp_path: Path) -> None:
    """However many processes there are, a scan reads a thousand; those seen twice cost none."""
    for pid in range(1, 2501):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text("serve\n" if pid in (3, 2400) else "other\n")
    find = NamedProcesses(tmp_path, frozenset(("serve",)))
    found = [list(find()) for _ in range(21)]
    assert found[0] == [3]
    assert found[19] == [3]
    assert found[20] == [3, 2400]


def test_only_watched_processes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many processes there are, without configured names procfs is not even listed."""
    monkeypatch.setattr(Path, "iterdir", None)
    assert of_live(os.getpid()).collect()


def test_watched_processes_are_bounded() -> None:
    """Past the bound the first sources win, and the rest is counted."""
    watched = WatchedProcesses((lambda: range(1, 151), lambda: range(101, 301)))
    assert watched() == list(range(1, 201))
    assert watched.overflow == 300 - MAX_PROCESSES


def test_nobody_to_watch_is_told() -> None:
    """Without senders the signal says what to do."""
    with pytest.raises(NoData) as caught:
        of_live().collect()
    assert "--process-names" in caught.value.remedy


def test_configured_name_reaches_the_collector(sleeper: "subprocess.Popen[bytes]") -> None:
    """The setting alone makes a process appear."""
    context = replace(CollectorContext(), selection=Selection(process_names=("sleep",)))
    collector = ProcessCollector(context)
    for _ in range(70):
        try:
            samples = collector.collect()
        except NoData:
            continue
        if (sleeper.pid,) in values(samples, "process.cpu.time", "process.pid"):
            return
    pytest.fail("the process was not found")


def test_executable_that_may_not_be_read_is_told_by_its_name(tmp_path: Path) -> None:
    """Without the right to follow `exe` the kernel's own name stands in."""
    (tmp_path / "comm").write_text("server\n")
    assert process_stat.executable(tmp_path) == "server"
    (tmp_path / "exe").symlink_to("/usr/bin/python3.13 (deleted)")
    assert process_stat.executable(tmp_path) == "python3.13"


def test_too_many_threads_are_counted_not_guessed(
    monkeypatch: pytest.MonkeyPatch, host: Host
) -> None:
    """Switches of a process with too many threads are absent and counted, not a part of them."""
    monkeypatch.setattr(process_stat, "MAX_THREADS", 1)
    context = CollectorContext(host("hybrid"), serving_pids=lambda: (4242,))
    samples = ProcessCollector(context).collect()
    assert values(samples, "process.context_switches") == {}
    assert values(samples, "tailcause.pipe.dropped", "reason") == {("too_many_threads",): 1}


def test_processes_that_come_and_go_leave_nothing_behind() -> None:
    """A hundred short processes, watched one after the other, leave no descriptor and no memory of them."""
    pids: list[int] = []
    collector = ProcessCollector(CollectorContext(serving_pids=lambda: pids[-1:]))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(25):
        with subprocess.Popen(("sleep", "60")) as process:
            pids.append(process.pid)
            assert collector.collect()
            process.kill()
    pids.append(os.getpid())
    collector.collect()
    assert len(collector._known) == 1
    assert len(list(Path("/proc/self/fd").iterdir())) - before <= 1
    assert sys.getsizeof(collector._known) < 10_000
