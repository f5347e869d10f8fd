"""The cgroup collector and the enricher on real cgroups, against the kernel's own files."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from agent.collectors.base import CollectorContext
from agent.collectors.cgroup import CgroupCollector
from agent.enrich import Enricher
from agent.host.hierarchies import discover
from agent.host.paths import HostPaths
from agent.otlp.decode import attributes
from agent.telemetry.model import Sample

pytestmark = [
    pytest.mark.privileged,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: cgroups"),
]

MOUNT = Path("/sys/fs/cgroup")
THROTTLED = "tailcause.cgroup.cpu.cfs.throttled_time"


class RealCgroup:
    """A cgroup with a quota of a tenth of a CPU, in whatever layout this machine has."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.v2 = (MOUNT / "cgroup.controllers").exists()
        names = ("cpu", "cpuacct", "memory", "pids", "unified")
        trees = [MOUNT] if self.v2 else [MOUNT / name for name in names]
        self.directories = [tree / path.lstrip("/") for tree in trees if tree.is_dir()]
        if self.v2:
            (MOUNT / "cgroup.subtree_control").write_text("+cpu +memory +pids")
        self.make()

    def make(self) -> None:
        """Create it and set the quota."""
        for directory in self.directories:
            directory.mkdir()
        cpu = self.directories[0]
        if self.v2:
            (cpu / "cpu.max").write_text("10000 100000")
        else:
            (cpu / "cpu.cfs_quota_us").write_text("10000")

    def add(self, pid: int) -> None:
        """Move a process in."""
        for directory in self.directories:
            (directory / "cgroup.procs").write_text(str(pid))

    def throttled_s(self) -> float:
        """Read the throttled seconds straight from the kernel's file."""
        words = (self.directories[0] / "cpu.stat").read_text().split()
        values = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        return values["throttled_usec"] / 1e6 if self.v2 else values["throttled_time"] / 1e9

    def remove(self) -> None:
        """Remove it; its processes must be gone."""
        for directory in self.directories:
            for _ in range(100):
                try:
                    directory.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.02)


@pytest.fixture
def cgroup() -> Iterator[RealCgroup]:
    """Make a cgroup and remove it."""
    real = RealCgroup(f"/tailcause-test-agent-{os.getpid()}-{time.monotonic_ns()}")
    try:
        yield real
    finally:
        real.remove()


@pytest.fixture
def start_in(cgroup: RealCgroup) -> Iterator[Callable[[str], int]]:
    """Return a way to start a Python program in the cgroup."""
    started: list[subprocess.Popen[bytes]] = []

    def start(program: str) -> int:
        gated = f"import sys; sys.stdin.read(1)\n{program}"
        process = subprocess.Popen((sys.executable, "-c", gated), stdin=subprocess.PIPE)
        started.append(process)
        cgroup.add(process.pid)
        assert process.stdin is not None
        process.stdin.write(b"x")
        process.stdin.close()
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.wait()


def value(samples: list[Sample], metric: str, path: str) -> Sample:
    """Return the one sample of a metric of a cgroup."""
    [found] = [
        s for s in samples if s.metric == metric and s.attributes["tailcause.cgroup.path"] == path
    ]
    return found


def test_throttled_seconds_are_the_kernels(
    cgroup: RealCgroup, start_in: Callable[[str], int]
) -> None:
    """Under a real quota the collector reads what cpu.stat says, and it grows."""
    collector = CgroupCollector(CollectorContext())
    first = value(collector.collect(), THROTTLED, cgroup.path)
    start_in("while True: pass")
    time.sleep(1.0)
    before_s = cgroup.throttled_s()
    samples = collector.collect()
    after_s = cgroup.throttled_s()
    assert first.value == 0
    assert 0 < before_s <= value(samples, THROTTLED, cgroup.path).value <= after_s
    assert value(samples, "tailcause.cgroup.cpu.limit", cgroup.path).value == 0.1
    assert value(samples, "container.cpu.time", cgroup.path).value > 0


def test_cgroup_made_again_starts_afresh(
    cgroup: RealCgroup, start_in: Callable[[str], int]
) -> None:
    """A cgroup that is removed and made again under its name is not read through old descriptors."""
    collector = CgroupCollector(CollectorContext())
    pid = start_in("for _ in range(3_000_000): pass")
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert value(collector.collect(), THROTTLED, cgroup.path).value > 0
    cgroup.remove()
    cgroup.make()
    assert value(collector.collect(), THROTTLED, cgroup.path).value == 0


def test_pressure_of_a_real_cgroup(cgroup: RealCgroup, start_in: Callable[[str], int]) -> None:
    """A throttled process shows up as CPU pressure of its own cgroup, joined by the path."""
    if not (cgroup.directories[-1] / "cpu.pressure").exists():
        pytest.skip("needs pressure stall information per cgroup")
    start_in("while True: pass")
    time.sleep(1.0)
    samples = CgroupCollector(CollectorContext()).collect()
    stalled = [
        s.value
        for s in samples
        if s.metric == "tailcause.cgroup.psi.time"
        and s.attributes["tailcause.cgroup.path"] == cgroup.path
        and s.attributes["tailcause.psi.resource"] == "cpu"
        and s.attributes["tailcause.psi.stall"] == "some"
    ]
    assert len(stalled) == 1
    assert stalled[0] > 0


def test_span_is_joined_to_a_real_cgroup(
    cgroup: RealCgroup, start_in: Callable[[str], int]
) -> None:
    """A span of a process in the cgroup carries the path that the collector reports."""
    pid = start_in("import time; time.sleep(60)")
    message = trace_service_pb2.ExportTraceServiceRequest()
    part = message.resource_spans.add()
    part.scope_spans.add().spans.add()
    for key, number in (("process.pid", pid), ("host.name", None)):
        pair = part.resource.attributes.add()
        pair.key = key
        if number is None:
            pair.value.string_value = socket.gethostname()
        else:
            pair.value.int_value = number
    paths = HostPaths()
    Enricher(paths, discover(paths), socket.gethostname()).enrich(message)
    joined = attributes(part.resource.attributes)["tailcause.cgroup.path"]
    assert joined == cgroup.path
    assert value(CgroupCollector(CollectorContext()).collect(), THROTTLED, str(joined))


def test_memory_of_a_real_cgroup(cgroup: RealCgroup, start_in: Callable[[str], int]) -> None:
    """Memory that a process touches is charged to its cgroup, as anonymous memory that is in use."""
    pid = start_in("import time; held = bytearray(b'x') * (64 << 20); time.sleep(60)")
    collector = CgroupCollector(CollectorContext())
    deadline_s = time.monotonic() + 60
    resident = 0.0
    while resident < 64 << 20 and time.monotonic() < deadline_s:
        samples = collector.collect()
        resident = value(samples, "container.memory.rss", cgroup.path).value
        time.sleep(0.02)
    used = value(samples, "container.memory.usage", cgroup.path).value
    working_set = value(samples, "container.memory.working_set", cgroup.path).value
    faults = [
        s.value
        for s in samples
        if s.metric == "container.paging.faults"
        and s.attributes["tailcause.cgroup.path"] == cgroup.path
        and s.attributes["system.paging.fault.type"] == "minor"
    ]
    assert 64 << 20 <= resident <= used
    assert 32 << 20 <= working_set <= used
    assert sum(faults) > 100
    assert Path(f"/proc/{pid}").exists()


def test_threads_of_a_real_cgroup(cgroup: RealCgroup, start_in: Callable[[str], int]) -> None:
    """The threads of a cgroup's processes are counted, and an unlimited number is no limit."""
    start_in(
        "import threading, time\n"
        "for _ in range(6): threading.Thread(target=time.sleep, args=(60,)).start()"
    )
    collector = CgroupCollector(CollectorContext())
    deadline_s = time.monotonic() + 60
    threads = 0.0
    while threads != 7 and time.monotonic() < deadline_s:
        samples = collector.collect()
        threads = value(samples, "tailcause.cgroup.threads", cgroup.path).value
        time.sleep(0.02)
    assert threads == 7
    assert not [
        s
        for s in samples
        if s.metric == "tailcause.cgroup.threads.limit"
        and s.attributes["tailcause.cgroup.path"] == cgroup.path
    ]


def test_pressure_that_is_switched_off_is_absent(cgroup: RealCgroup) -> None:
    """A cgroup whose pressure is off has none, neither a 0 nor an error; on again, it is back."""
    switch = cgroup.directories[-1] / "cgroup.pressure"
    if not switch.exists():
        pytest.skip("needs pressure stall information that can be switched off per cgroup")
    collector = CgroupCollector(CollectorContext())

    def stalls() -> int:
        samples = collector.collect()
        assert "unreadable" not in {s.attributes.get("reason") for s in samples}
        return sum(
            s.metric == "tailcause.cgroup.psi.time"
            and s.attributes["tailcause.cgroup.path"] == cgroup.path
            for s in samples
        )

    assert stalls() == 6
    switch.write_text("0")
    assert stalls() == 0
    switch.write_text("1")
    assert 6 in [stalls() for _ in range(11)]
