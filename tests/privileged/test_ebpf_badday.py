"""Bad days: whatever runs out, goes away or is forbidden is a counted or named state; never a crash, never a false zero."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ebpf.layout import Wait
from ebpf.libbpf import Library, Object
from ebpf.probe import Kernel
from ebpf.probes.mem import HOOKS, Mem
from ebpf.probes.sched import Sched
from ebpf.probes.span import SpanProbe, SpanWaits
from ebpf.reading import Histogram, Readings
from ebpf.session import BUILT, Session, State
from ebpf.slotpool import GRACE_S, ROUND_S
from tests.support.kernel_workloads import PING_PONG, Cgroup, Gated, cgroups
from tests.support.probe_session import (
    attached,
    bpf_files,
    close_to,
    histogram,
    map_ids,
    needs_probes,
    pins,
    program_ids,
    still_loaded,
)

BUILT_LIBRARY = BUILT / "libtailcause_span.so"
SOME_WAITS = ("import time\nfor _ in range(97): time.sleep(0.0005)",)
CPU = max(os.sched_getaffinity(0))
PRIME = 997
OLD_RUNS = 5
SPANS = 9973
SPANS_OPEN = 20011

pytestmark = [pytest.mark.privileged, needs_probes]


class SmallKernel(Kernel):
    """A kernel in which some maps have room for very little."""

    def open(self, probe: str) -> Object:
        """Open an object and shrink what this test wants to fill."""
        opened = super().open(probe)
        for name, entries in SMALL.items():
            opened.resize(name, entries)
        return opened


SMALL = {"cgroup_slots": 3, "free_slots": 3, "matrix": 1}


@dataclass
class Clock:
    """A clock that a test moves."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def counts(readings: Readings, cgroup: str) -> int:
    """Return how many switches a cgroup has had."""
    return histogram(readings, "runqueue.delay", cgroup).count


def goes_on(session: Session) -> bool:
    """Tell whether the scheduler probe counts."""
    for _ in range(100):
        if session.read()["sched"].events > 0:
            return True
        time.sleep(0.02)
    return False


def run_in(cgroup: Cgroup) -> None:
    """Let a program sleep a few times in a cgroup, and end."""
    with Gated(SOME_WAITS).put(cgroup) as program:
        program.go().wait_until_done()


def test_more_cgroups_than_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cgroups without a slot are counted together as "other", and how often is told."""
    made = Session._open_kernel
    monkeypatch.setattr(Session, "_open_kernel", lambda self: SmallKernel(**vars(made(self))))
    with attached(Sched()) as session, cgroups("a", "b", "c", "d", "e") as made_cgroups:
        for cgroup in made_cgroups:
            run_in(cgroup)
        readings = session.read()["sched"]
        assert readings.dropped["cgroups_full"] > 0
        assert counts(readings, "other") >= 3 * 97
        named = {r.labels["cgroup"] for r in readings.series} - {"other", "idle"}
        assert len(named) <= SMALL["free_slots"]


def test_more_pairs_than_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of victim and aggressor without room in the matrix are counted; the histograms stay whole."""
    made = Session._open_kernel
    monkeypatch.setattr(Session, "_open_kernel", lambda self: SmallKernel(**vars(made(self))))
    monkeypatch.setitem(SMALL, "cgroup_slots", 1024)
    monkeypatch.setitem(SMALL, "free_slots", 1024)
    with attached(Sched()) as session, cgroups("a", "b", "c") as [a, b, c]:
        # the pairs (900, 932) and (901, 901) share a place in the cache before the matrix
        give_slots(session, {a: 900, b: 932, c: 901})
        for _ in range(3):
            play(a, b)
            play(c, c)
        readings = session.read()["sched"]
    assert readings.dropped["pairs_full"] > 0
    assert counts(readings, c.path) >= 3 * 2 * PRIME


def give_slots(session: Session, wanted: Mapping[Cgroup, int]) -> None:
    """Give cgroups slots of our choice before the kernel does."""
    known = session._shared("cgroup_slots")
    assert known is not None
    for cgroup, slot in wanted.items():
        known.update(identity(cgroup), slot.to_bytes(4, sys.byteorder))


def play(one: Cgroup, other: Cgroup) -> None:
    """Play ping-pong on one CPU between processes of two cgroups."""
    with Gated(PING_PONG, str(PRIME)).put(one, CPU) as program:
        program.go().wait_until_done()
        for child in program.children():
            other.add(child)
        program.go().wait_until_done()


def test_more_processes_to_watch_than_room() -> None:
    """Processes beyond what can be watched are counted; the others are watched."""
    with attached(Sched()) as session:
        session.watch(range(10, 1500))
        assert session.unwatched == 1490 - 1024
        session.watch([os.getpid()])
        assert session.unwatched == 0
        assert goes_on(session)


# Spans that do not end as they should.


@dataclass
class Spans:
    """The span library, and the spans that the probe has delivered."""

    library: Path
    call: ctypes.CDLL = field(init=False)
    got: list[SpanWaits] = field(default_factory=list)
    probe: SpanProbe = field(init=False)

    def __post_init__(self) -> None:
        self.call = ctypes.CDLL(str(self.library))
        self.probe = SpanProbe((self.library,), self.got.append)

    def start(self, span_id: int) -> None:
        """Begin a span on this thread."""
        self.call.tailcause_span_start(*map(ctypes.c_uint64, (1, 2, span_id)))

    def end(self, span_id: int) -> None:
        """End a span on this thread."""
        self.call.tailcause_span_end(*map(ctypes.c_uint64, (1, 2, span_id)))

    def take(self) -> list[SpanWaits]:
        """Return the spans that have come, and forget them."""
        self.probe.poll()
        taken, self.got[:] = list(self.got), []
        return taken

    def dropped(self) -> Mapping[str, int]:
        """Return what was lost so far."""
        return self.probe.read().dropped


@pytest.fixture
def spans(tmp_path: Path) -> Iterator[Spans]:
    """Attach the probes to a copy of the library that nobody else calls."""
    if not BUILT_LIBRARY.exists():
        pytest.skip("needs the span library (a C compiler)")
    copied = tmp_path / BUILT_LIBRARY.name
    shutil.copy(BUILT_LIBRARY, copied)
    ready = Spans(copied)
    with attached(Sched(), ready.probe):
        yield ready


def test_ring_buffer_full(spans: Spans) -> None:
    """Spans that find no room are counted, one by one."""
    for span_id in range(1, SPANS + 1):
        spans.start(span_id)
        spans.end(span_id)
    delivered = len(spans.take())
    lost = spans.dropped()["spans_lost"]
    assert lost > 0
    assert delivered + lost == SPANS


def test_more_open_spans_than_room(spans: Spans) -> None:
    """The oldest open spans give way; their ends are counted as unknown."""
    for span_id in range(1, SPANS_OPEN + 1):
        spans.start(span_id)
    delivered = 0
    for span_id in range(1, SPANS_OPEN + 1):
        spans.end(span_id)
        if span_id % 1000 == 0:
            delivered += len(spans.take())
    delivered += len(spans.take())
    assert spans.dropped()["spans_unknown"] > 0
    assert delivered + spans.dropped()["spans_unknown"] == SPANS_OPEN


def test_thread_exits_in_mid_span(spans: Spans) -> None:
    """A span whose thread has gone has times and no waits when another thread ends it."""
    thread = threading.Thread(target=spans.start, args=(7,))
    thread.start()
    thread.join()
    assert spans.take() == []
    spans.end(7)
    [span] = spans.take()
    assert span.waits_s == {}
    assert span.end_monotonic_s > span.start_monotonic_s


def test_fork_in_mid_span(spans: Spans) -> None:
    """A child's own spans are its own, and the span that was open at the fork stays its parent's."""
    spans.start(7)
    child = os.fork()
    if child == 0:
        spans.start(8)
        time.sleep(0.05)
        spans.end(8)
        os._exit(0)
    os.waitpid(child, 0)
    spans.end(7)
    got = spans.take()
    inner, outer = got
    assert (inner.pid, outer.pid) == (child, os.getpid())
    assert inner.waits_s[Wait.SLEEP] == close_to(0.05)
    assert sum(outer.waits_s.values()) == close_to(outer.end_monotonic_s - outer.start_monotonic_s)


def test_exec_in_mid_span(spans: Spans) -> None:
    """A span that begins before an exec and ends after it keeps all of its thread's waits."""
    call = "import ctypes, time; l = ctypes.CDLL({!r}); l.tailcause_span_{}(*map(ctypes.c_uint64, (1, 2, 7)))"
    after = f"import time; time.sleep(0.05); {call.format(str(spans.library), 'end')}"
    before = f"import os, sys; {call.format(str(spans.library), 'start')}; os.execv(sys.executable, {[sys.executable, '-c', after]!r})"
    subprocess.run((sys.executable, "-c", before), check=True)
    [span] = spans.take()
    assert span.waits_s[Wait.SLEEP] == close_to(0.05)
    assert sum(span.waits_s.values()) == close_to(span.end_monotonic_s - span.start_monotonic_s)


def test_pid_used_again(spans: Spans) -> None:
    """A new process with the number of the one that began a span does not get its waits."""
    last = Path("/proc/sys/kernel/ns_last_pid")
    if not last.exists():
        pytest.skip("needs /proc/sys/kernel/ns_last_pid (CONFIG_CHECKPOINT_RESTORE)")

    def fork(work: str) -> int:
        child = os.fork()
        if child == 0:
            if work == "start":
                spans.start(7)
            elif os.getpid() == wanted:
                spans.end(7)
            os._exit(0)
        os.waitpid(child, 0)
        return child

    wanted = 0
    wanted = fork("start")
    for _ in range(1000):
        last.write_text(str(wanted - 1))
        if fork("end") == wanted:
            break
    else:
        pytest.skip("needs a machine that starts fewer processes")
    [span] = spans.take()
    assert (span.pid, span.waits_s) == (wanted, {})


# Cgroups that come and go.


def test_slot_of_a_cgroup_that_is_gone_is_used_again() -> None:
    """After a while the slot goes to a new cgroup, which begins at nothing; until then the old name stands."""
    clock = Clock()
    session = Session([Sched()], clock=clock)
    session.start()
    try:
        with cgroups("old") as [old]:
            for _ in range(OLD_RUNS):
                run_in(old)
            assert counts(session.read()["sched"], old.path) >= OLD_RUNS * 97
            slot = slots(session)[identity(old)]
        clock.now_s += ROUND_S
        assert counts(session.read()["sched"], old.path) >= OLD_RUNS * 97
        clock.now_s += GRACE_S
        assert counts(session.read()["sched"], old.path) == 0
        for _ in range(2):
            clock.now_s += ROUND_S
            session.read()
        put_first(session, slot)
        with cgroups("new") as [new]:
            run_in(new)
            heir = next(key for key, value in slots(session).items() if value == slot)
            readings = session.read()["sched"]
            if heir == identity(new):  # or that of a cgroup that is not ours
                assert 97 <= counts(readings, new.path) < OLD_RUNS * 97
        assert session._pool is not None
        assert session._pool.recycled >= 1
        assert slot in slots(session).values()
    finally:
        session.stop()


def identity(cgroup: Cgroup) -> bytes:
    """Return a cgroup's id as the kernel's maps have it."""
    return cgroup.directory.stat().st_ino.to_bytes(8, sys.byteorder)


def slots(session: Session) -> dict[bytes, bytes]:
    """Return the slot of every cgroup that has one."""
    found = session._shared("cgroup_slots")
    assert found is not None
    return dict(found.items())


def put_first(session: Session, slot: bytes) -> None:
    """Reorder the queue of free slots: this one, which was given back, is the next to be handed out."""
    free = session._shared("free_slots")
    assert session.library is not None
    assert free is not None
    call, taken = session.library.call, ctypes.create_string_buffer(4)
    others = []
    while call.bpf_map_lookup_and_delete_elem(free.fd, None, taken) == 0:
        others.append(taken.raw)
    assert slot in others
    for value in [slot, *(other for other in others if other != slot)]:
        free.update(None, value)


def test_cgroup_made_again_under_its_name() -> None:
    """The new one's series begins afresh; there are never two of the same name."""
    with attached(Sched()) as session, cgroups("parent") as [parent]:
        for _ in range(3):
            again = Cgroup(f"{parent.path}/again")
            run_in(again)
            readings = session.read()["sched"]
            again.remove()
            series = [
                r
                for r in readings.series
                if r.metric == "runqueue.delay" and r.labels["cgroup"] == again.path
            ]
            assert len(series) == 1
            assert isinstance(series[0].value, Histogram)
            assert 97 <= series[0].value.count < 2 * 97 + 60


def test_cgroup_gone_before_it_was_named() -> None:
    """A cgroup that came and went between two readings keeps its numbers, under its id."""
    with attached(Sched()) as session:
        with cgroups("brief") as [brief]:
            run_in(brief)
        names = {r.labels["cgroup"] for r in session.read()["sched"].series}
    assert any(name.startswith("(gone:") for name in names)
    assert brief.path not in names


# What is missing or forbidden.


def test_missing_hook_is_a_named_state() -> None:
    """A probe whose hook this kernel lacks says which; the others go on."""
    session = Session([Sched(), Mem(hooks={**HOOKS, "reclaim_begin": "no_such_hook"})])
    session.start()
    try:
        assert session.slots["mem"].state is State.NOT_SUPPORTED
        assert "no_such_hook" in session.slots["mem"].reason
        assert session.slots["sched"].state is State.ON
        assert goes_on(session)
    finally:
        session.stop()


START = """
import json
from ebpf.registry import PROBES
from ebpf.session import Session
session = Session([make() for make in PROBES.values()])
session.start()
session.read()
print(json.dumps({name: [slot.state, slot.reason] for name, slot in session.slots.items()}))
session.stop()
"""


def states_without(*capabilities: str) -> dict[str, tuple[str, str]]:
    """Start all probes in a process that lacks some capabilities; return states and reasons."""
    dropped = ",".join(f"-{name}" for name in capabilities)
    done = subprocess.run(
        (
            "setpriv",
            f"--bounding-set={dropped}",
            f"--inh-caps={dropped}",
            sys.executable,
            "-c",
            START,
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, tuple[str, str]] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize(
    "capability",
    [
        "bpf",
        "perfmon",
        "sys_admin",
        "sys_resource",
        "sys_ptrace",
        "net_admin",
        "dac_override",
        "ipc_lock",
    ],
)
def test_each_capability_taken_away_alone(capability: str) -> None:
    """Whatever one capability is missing, each probe is on or says why not, and the scheduler probe is on."""
    states = states_without(capability)
    assert states["sched"][0] == "on"
    assert all(state == "on" or reason for state, reason in states.values())


@pytest.mark.parametrize(
    ("capabilities", "named"),
    [
        (("sys_admin", "bpf"), "CAP_BPF"),
        (("sys_admin", "perfmon"), "CAP_PERFMON"),
        (("sys_admin", "bpf", "perfmon"), "CAP_BPF and CAP_PERFMON"),
    ],
)
def test_missing_capability_is_named(capabilities: tuple[str, ...], named: str) -> None:
    """Where CAP_SYS_ADMIN does not stand in for it, the reason names what is missing."""
    state, reason = states_without(*capabilities)["sched"]
    assert state == "no_permission"
    assert named in reason


# Nothing is left behind.


def test_unload_leaves_nothing() -> None:
    """After `stop` no program, map, link or pin of ours is in the kernel, and no descriptor is open."""
    library = Library()
    files, pinned = bpf_files(), pins()
    before = program_ids(), map_ids()
    with attached(Sched(), Mem()) as session:
        session.read()
        programs, maps = program_ids() - before[0], map_ids() - before[1]
        assert programs
        assert maps
    assert bpf_files() == files
    assert pins() == pinned
    assert still_loaded(library, programs, maps) == []


def test_killed_agent_leaves_nothing() -> None:
    """When the process that loaded them is killed, the kernel drops programs, maps and links by itself."""
    waits = START.replace(
        "print(json", "from tests.support.probe_session import program_ids, map_ids; print(json"
    )
    waits = waits.replace(
        "session.stop()",
        "import time; print(json.dumps([sorted(program_ids()), sorted(map_ids())]), flush=True); time.sleep(600)",
    )
    agent = subprocess.Popen((sys.executable, "-c", waits), stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    agent.stdout.readline()
    programs, maps = json.loads(agent.stdout.readline())
    pinned = pins()
    os.kill(agent.pid, signal.SIGKILL)
    agent.communicate()
    assert programs
    assert still_loaded(Library(), set(programs), set(maps)) == []
    assert pins() == pinned
