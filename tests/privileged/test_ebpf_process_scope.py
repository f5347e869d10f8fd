"""The ledger of spans that no hook has seen, on a server of vLLM's shape and of known truth."""

import json
import os
import select
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1 import trace_pb2

from agent.host.hierarchies import discover
from agent.host.paths import HostPaths
from agent.host.serving import ServingProcesses
from agent.ledger_process import annotate
from agent.otlp.decode import attributes
from agent.telemetry.keys import WAIT_PARTS, WAIT_PREFIX
from ebpf.layout import SAMPLE
from ebpf.probes.sched import Sched
from ebpf.probes.waits import Waits
from ebpf.ring import INTERVAL_S, Ring
from tests.support.kernel_workloads import HOG, PING_PONG, Cgroup, Gated, cgroups, running
from tests.support.probe_session import LOOSE, attached, bpf_files, loosely, needs_probes

pytestmark = [pytest.mark.privileged, needs_probes]

DOUBLE = Path(__file__).parent.parent / "support/engine_double.py"
CPU = min(os.sched_getaffinity(0))
"""All that is measured runs here: some virtual machines miss switches on the CPUs that they keep for bursts."""

ENDLESS = str(10**9)


@dataclass(frozen=True)
class Explained:
    """A request's ledger, and the truth about it."""

    ledger: dict[str, Any]
    wall_s: float
    cpu_s: float
    run_delay_s: float
    blocked_s: float

    @property
    def named_share(self) -> float:
        """How much of the wall time has a name."""
        return float(sum(self.ledger.get(name, 0.0) for name in WAIT_PARTS)) / self.wall_s


class Server:
    """The double, the ring beside it, and requests that are reported when they are over."""

    def __init__(self, process: subprocess.Popen[str], ring: Ring) -> None:
        self._process, self.ring = process, ring
        assert process.stdout is not None
        assert process.stdin is not None
        self._out, self._in = process.stdout, process.stdin
        hello = json.loads(self._out.readline())
        self.pid, self.engine_pid = hello["pid"], hello["engine_pid"]
        self.serving = ServingProcesses(HostPaths(), discover(HostPaths()))

    def request(self, task: str, seconds: float) -> Explained:
        """Serve one request, sampling all the while, and explain it as an agent would that gets the span later."""
        self._sample_for(3 * INTERVAL_S)
        self._in.write(json.dumps({"task": task, "seconds": seconds}) + "\n")
        self._in.flush()
        while not select.select([self._out], [], [], INTERVAL_S)[0]:
            self.ring.sample()
        truth = json.loads(self._out.readline())
        self._sample_for(3 * INTERVAL_S)
        span = trace_pb2.Span(
            start_time_unix_nano=truth["start_unix_ns"], end_time_unix_nano=truth["end_unix_ns"]
        )
        assert annotate(span, self.pid, self.ring, self.serving)
        ledger = {
            key.removeprefix(WAIT_PREFIX): value
            for key, value in attributes(span.attributes).items()
        }
        wall_s = (truth["end_unix_ns"] - truth["start_unix_ns"]) / 1e9
        return Explained(ledger, wall_s, truth["cpu_s"], truth["run_delay_s"], truth["blocked_s"])

    def _sample_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.ring.sample()
            time.sleep(INTERVAL_S)


@contextmanager
def served(cgroup: Cgroup) -> Iterator[Server]:
    """Start the double in a cgroup, watch what serves there, and let it do some work that shows who works."""
    probe = Waits()
    with attached(Sched(), probe) as session:
        process = subprocess.Popen(
            (sys.executable, "-I", "-S", str(DOUBLE)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            server = Server(process, Ring(probe))
            for pid in (server.pid, server.engine_pid):
                cgroup.add(pid)
                os.sched_setaffinity(pid, {CPU})
            session.watch(server.serving(server.pid))
            server.request("mixed", 0.5)
            yield server
        finally:
            process.communicate(timeout=60)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Keep one server for the tests that need nothing special."""
    with cgroups("serving") as (cgroup,), served(cgroup) as started:
        yield started


def slot_close(truth_s: float) -> Any:
    """Return what compares equal within 5 % or the resolution of the ring."""
    factor = 6.0 if LOOSE else 1.0
    return pytest.approx(truth_s, rel=0.05 * factor, abs=INTERVAL_S * factor)


def throttled_s(cgroup: Cgroup) -> float:
    """Read how long a cgroup has been throttled, as the kernel says."""
    words = (cgroup.directory / "cpu.stat").read_text().split()
    values = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    return values["throttled_usec"] / 1e6 if cgroup.unified else values["throttled_time"] / 1e9


def test_busy_engine_is_on_the_cpu(server: Server) -> None:
    """The API process waits all the time; the ledger is that of the process that worked."""
    explained = server.request("busy", 1.3)

    assert explained.ledger["scope"] == "process"
    assert explained.ledger["cpu"] == slot_close(explained.cpu_s)
    assert explained.ledger.get("runqueue", 0.0) == slot_close(explained.run_delay_s)
    assert explained.named_share >= 0.95


def test_sleeping_engine_sleeps(server: Server) -> None:
    """The engine does next to nothing, and is still the thread that serves."""
    explained = server.request("sleep", 1.1)

    assert explained.ledger["sleep"] == slot_close(explained.blocked_s)
    assert explained.named_share >= 0.95


def test_engine_waits_for_a_lock(server: Server) -> None:
    """Neither the idle worker, which waits for a lock all its life, nor the sleeping holder speaks for the request."""
    explained = server.request("lock", 0.9)

    locked_s, queued_s = explained.ledger["lock"], explained.ledger.get("runqueue", 0.0)
    assert locked_s >= explained.blocked_s - INTERVAL_S
    assert locked_s + queued_s == slot_close(explained.wall_s)
    assert explained.named_share >= 0.95


def test_engine_that_takes_turns(server: Server) -> None:
    """Work and sleep within single slots are both accounted."""
    explained = server.request("mixed", 1.5)

    assert explained.ledger["cpu"] == slot_close(explained.cpu_s)
    assert explained.ledger["sleep"] == slot_close(explained.blocked_s)
    assert explained.named_share >= 0.95


def test_throttled_engine_is_throttled() -> None:
    """Under a quota of a fifth of a CPU, the rest of the time is throttled, as the cgroup says."""
    with cgroups("limited") as (cgroup,), served(cgroup) as limited:
        cgroup.set_quota(20_000)
        before_s = throttled_s(cgroup)
        explained = limited.request("busy", 0.3)
        truth_s = throttled_s(cgroup) - before_s

    assert explained.ledger["throttled"] == slot_close(truth_s)
    assert explained.ledger["cpu"] == slot_close(explained.cpu_s)
    assert explained.named_share >= 0.95


def test_engine_beside_a_hog_waits_in_the_run_queue() -> None:
    """With a busy process on its CPU, the engine's wait is the run queue's, as schedstat says."""
    with (
        cgroups("serving", "noisy") as (cgroup, noisy),
        served(cgroup) as shared,
        running(HOG, 1, noisy, CPU),
    ):
        explained = shared.request("busy", 0.5)

    assert explained.ledger["runqueue"] == slot_close(explained.run_delay_s)
    assert explained.ledger["cpu"] == slot_close(explained.cpu_s)
    assert explained.named_share >= 0.95


def test_no_sample_is_lost_or_torn(server: Server) -> None:
    """The waits of every thread add up to its time at every sample."""
    server.request("busy", 0.5)

    assert dict(server.ring.dropped) == {}


def test_no_look_sees_half_a_change() -> None:
    """While two threads hand a CPU to and fro, the waits of each add up to its time, to the nanosecond, at every look."""
    probe, looks = Waits(), 0
    births: dict[int, set[int]] = defaultdict(set)
    with (
        attached(Sched(), probe) as session,
        Gated(PING_PONG, ENDLESS).put(None, CPU) as program,
    ):
        program.go().wait_until_done()
        players = [program.pid, *program.children()]
        session.watch(players)
        program.go()
        until = time.monotonic() + loosely(2.0, 8.0)
        while time.monotonic() < until:
            for sample in SAMPLE.iterate(probe.sample()):
                births[sample[1]].add(sample[3] - sample[7])
                looks += 1
        lost = session.read()["waits"].dropped["events_lost"]

    assert {tid: len(found) for tid, found in births.items()} == dict.fromkeys(players, 1)
    assert looks > loosely(20, 2) * lost  # an emulated CPU stands still in mid-change now and then


def test_process_that_is_not_watched_has_no_ledger(server: Server) -> None:
    """Of a process that nobody asked about, nothing is said."""
    now_ns = time.time_ns()
    span = trace_pb2.Span(start_time_unix_nano=now_ns - 10**9, end_time_unix_nano=now_ns)

    assert not annotate(span, os.getpid(), server.ring)
    assert list(span.attributes) == []


def test_every_thread_of_a_watched_process_is_seen_once() -> None:
    """Exact numbers: a prime number of threads that have slept since they were watched, and the main one."""
    program = "\n".join((
        "import sys, threading, time",
        "go = threading.Event()",
        "def work():",
        "    while not go.wait(0.02): pass",
        "threads = [threading.Thread(target=work) for _ in range(97)]",
        "for thread in threads: thread.start()",
        "print('up', flush=True)",
        "sys.stdin.readline(); go.set()",
    ))  # fmt: skip
    probe = Waits()
    with attached(Sched(), probe) as session:
        process = subprocess.Popen(
            (sys.executable, "-I", "-S", "-c", program),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        session.watch([process.pid])
        tids = _tids_after(probe, 97)
        listed = {int(entry.name) for entry in Path(f"/proc/{process.pid}/task").iterdir()}
        process.communicate("\n")

    assert len(tids) == len(set(tids))
    assert len(listed - set(tids)) <= 1  # the main thread waits and has not been switched since
    assert set(tids) <= listed


def test_it_leaves_nothing_behind() -> None:
    """Walks of processes are links of their own; all of them go."""
    before = bpf_files()
    probe = Waits()
    with attached(Sched(), probe) as session:
        session.watch([os.getpid(), os.getppid()])
        probe.sample()
        session.watch([os.getpid()])
        probe.sample()

    assert bpf_files() == before
    assert probe.sample() == b""


def _tids_after(probe: Waits, wanted: int) -> list[int]:
    for _ in range(100):
        tids = [fields[1] for fields in SAMPLE.iterate(probe.sample())]
        if len(tids) >= wanted:
            return tids
        time.sleep(0.05)
    return tids
