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
from tests.support.real_cgroup import RealCgroup

pytestmark = [
    pytest.mark.privileged,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: cgroups"),
]

THROTTLED = "tailcause.cgroup.cpu.cfs.throttled_time"


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


def test_cgroups_come_and_go_between_two_rounds(cgroup: RealCgroup) -> None:
    """Without listing directories again, the end of a cgroup and a new one show at the next reading."""
    collector = CgroupCollector(CollectorContext())

    def is_there() -> bool:
        return any(
            s.attributes.get("tailcause.cgroup.path") == cgroup.path for s in collector.collect()
        )

    assert is_there()
    cgroup.remove()
    assert not is_there()
    cgroup.make()
    assert is_there()


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


def test_writes_of_a_real_cgroup_are_counted_or_absent(
    cgroup: RealCgroup, start_in: Callable[[str], int], tmp_path: Path
) -> None:
    """What a process writes to a disk shows in v2; v1 kernels that do not count it show nothing, never a 0."""
    size, done = 4 << 20, tmp_path / "done"
    start_in(
        f"import os, pathlib, time\n"
        f"file = os.open({str(tmp_path / 'data')!r}, os.O_WRONLY | os.O_CREAT)\n"
        f"os.write(file, b'x' * {size}); os.fsync(file)\n"
        f"pathlib.Path({str(done)!r}).touch(); time.sleep(60)"
    )
    deadline_s = time.monotonic() + 120
    while not done.exists() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    written = [
        s.value
        for s in CgroupCollector(CollectorContext()).collect()
        if s.metric == "container.disk.io"
        and s.attributes["tailcause.cgroup.path"] == cgroup.path
        and s.attributes["disk.io.direction"] == "write"
    ]
    assert sum(written) >= size or (not written and not cgroup.v2)


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
    assert 0 in [stalls() for _ in range(11)]  # an idle cgroup is read every tenth time
    switch.write_text("1")
    assert 6 in [stalls() for _ in range(11)]
