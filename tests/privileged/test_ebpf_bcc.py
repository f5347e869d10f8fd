"""What both loaders must say alike of the run queue, and how the bcc loader behaves on bad days.

Runs on a kernel with BTF, where bcc is forced, and on one without, where it is what a session falls back to.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ebpf import session as session_module
from ebpf.bcc_loader import headers
from ebpf.bcc_loader.probe import SYSTEM_PYTHON, SchedBcc
from ebpf.cgroupids import find_hierarchy
from ebpf.errors import NotSupportedError
from ebpf.layout import Hierarchy
from ebpf.probes.sched import Sched
from ebpf.reading import Readings
from ebpf.session import BTF, Loader, Session, State
from tests.support.kernel_workloads import (
    BURSTS,
    HOG,
    PING_PONG,
    SLEEPER,
    Cgroup,
    Gated,
    Switches,
    cgroups,
    running,
    switches,
    wait_until_asleep,
)
from tests.support.probe_session import histogram, loosely, number, why_no_probes

PRIME = 997
CPU = max(os.sched_getaffinity(0))


def why_no_bcc() -> str:
    """Name what the bcc loader lacks here, or nothing."""
    if os.geteuid() != 0:
        return "needs root (CAP_SYS_ADMIN)"
    asked = subprocess.run((SYSTEM_PYTHON, "-c", "import bcc"), capture_output=True, check=False)
    if asked.returncode:
        return "needs python3-bpfcc"
    try:
        headers.find()
    except NotSupportedError:
        return "needs kernel headers"
    return ""


needs_bcc = pytest.mark.skipif(bool(why_no_bcc()), reason=why_no_bcc())
pytestmark = [pytest.mark.privileged, needs_bcc]


@dataclass(frozen=True)
class Loaded:
    """A session and the name of its scheduler probe."""

    session: Session
    probe: str

    def read(self) -> Readings:
        """Read the scheduler probe."""
        return self.session.read()[self.probe]


def load(loader: Loader) -> Loaded:
    """Start a session that has nothing but a scheduler probe."""
    session = Session([Sched()], loader=loader)
    session.start()
    name = "sched-bcc" if loader is Loader.BCC else "sched"
    assert (session.slots[name].state, session.slots[name].reason) == (State.ON, "")
    return Loaded(session, name)


@pytest.fixture(scope="module", params=[Loader.BCC, Loader.LIBBPF])
def loaded(request: pytest.FixtureRequest) -> Iterator[Loaded]:
    """Attach the scheduler probe through each loader in turn."""
    if request.param is Loader.LIBBPF and why_no_probes():
        pytest.skip(why_no_probes())
    ready = load(request.param)
    yield ready
    ready.session.stop()


@pytest.fixture
def bcc() -> Iterator[Loaded]:
    """Attach the scheduler probe through bcc, for one test."""
    ready = load(Loader.BCC)
    yield ready
    ready.session.stop()


@dataclass(frozen=True)
class Counted:
    """What the probe and the kernel counted for a cgroup over one stage of a program."""

    delays: int
    delay_s: float
    involuntary: float
    blame_s: dict[str, float]
    missed: int
    """Switches that may be missing: a run that the kernel left out, and that the probe noticed, costs three at most; one
    that the kernel took sleep for a wait of, costs one."""
    kernel: Switches


def count_stage(loaded: Loaded, program: Gated, cgroup: Cgroup) -> Counted:
    """Run a stage; every process of the cgroup sleeps before and after."""

    def look() -> tuple[Readings, Switches]:
        pids = cgroup.pids()
        for pid in pids:
            wait_until_asleep(pid)
        while True:  # a thread may be preempted on its way to sleep, with one switch to come
            kernel, readings = switches(pids), loaded.read()
            if switches(pids) == kernel:
                return readings, kernel

    before, kernel_before = look()
    program.go().wait_until_done()
    after, kernel_after = look()
    delay, delay_before = (histogram(r, "runqueue.delay", cgroup.path) for r in (after, before))
    involuntary, involuntary_before = (
        number(r, "runqueue.involuntary_switches", cgroup=cgroup.path) for r in (after, before)
    )
    blame_before_s = charged_s(before, cgroup)
    return Counted(
        delays=delay.count - delay_before.count,
        delay_s=delay.sum_s - delay_before.sum_s,
        involuntary=involuntary - involuntary_before,
        blame_s={
            name: ns - blame_before_s.get(name, 0.0)
            for name, ns in charged_s(after, cgroup).items()
        },
        missed=3 * (missed(after) - missed(before)) + unknown(after) - unknown(before),
        kernel=kernel_after.since(kernel_before),
    )


def missed(readings: Readings) -> int:
    """Return how many runs the kernel has left out: programs on perf's tracepoints give way to others on their CPU."""
    return sum(readings.dropped.get(name, 0) for name in ("runs_missed", "switches_missed"))


def unknown(readings: Readings) -> int:
    """Return how many delays the kernel could not tell."""
    return readings.dropped.get("delays_unknown", 0)


def charged_s(readings: Readings, victim: Cgroup) -> dict[str, float]:
    """Return the victim's row of the matrix."""
    return {
        r.labels["aggressor"]: r.value
        for r in readings.series
        if r.metric == "runqueue.wait_on"
        and r.labels["cgroup"] == victim.path
        and isinstance(r.value, float)
    }


def test_switches_are_counted_exactly(loaded: Loaded) -> None:
    """A prime number of rounds of ping-pong: each switch counts once, but for those that the probe says it missed."""
    with cgroups("pingpong") as [cgroup], Gated(PING_PONG, str(PRIME)).put(cgroup, CPU) as program:
        program.go().wait_until_done()
        counted = count_stage(loaded, program, cgroup)
    assert counted.kernel.total >= 2 * PRIME
    assert counted.kernel.total - counted.missed <= counted.delays <= counted.kernel.total
    assert counted.kernel.involuntary - counted.missed <= counted.involuntary
    assert counted.involuntary <= counted.kernel.involuntary


def test_sleeper_is_not_taken_for_preempted(loaded: Loaded) -> None:
    """A thread that sleeps a prime number of times is switched away from as often, (almost) never against its will."""
    with cgroups("sleeper") as [cgroup], Gated(SLEEPER, str(PRIME)).put(cgroup, CPU) as program:
        counted = count_stage(loaded, program, cgroup)
    assert counted.kernel.total - counted.missed <= counted.delays <= counted.kernel.total
    assert counted.involuntary <= 0.05 * PRIME


def test_delay_is_the_kernels(loaded: Loaded) -> None:
    """Beside hogs of its CPU a victim waits as long as schedstat says; all is charged, to the hogs if they got the CPU."""
    with (
        cgroups("victim", "hogs") as [victim, hogs],
        running(HOG, 3, hogs, CPU),
        Gated(BURSTS, "53").put(victim, CPU) as program,
    ):
        had_s = hogs.cpu_s()
        counted = count_stage(loaded, program, victim)
        got_s = hogs.cpu_s() - had_s
    assert counted.kernel.total - counted.missed <= counted.delays <= counted.kernel.total
    assert counted.delay_s == pytest.approx(
        counted.kernel.run_delay_s, rel=loosely(0.05, 0.3), abs=0.005 * (1 + counted.missed)
    )
    assert sum(counted.blame_s.values()) == pytest.approx(counted.delay_s, rel=0.001, abs=1e-6)
    assert counted.blame_s.get(hogs.path, 0.0) > 0 or got_s < 0.1


def test_session_falls_back_without_btf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without BTF the probes that need it say so, and the run queue is read through bcc."""
    monkeypatch.setattr(session_module, "BTF", BTF.with_name("absent"))
    session = Session([Sched()])
    session.start()
    try:
        assert session.slots["sched"].state is State.NOT_SUPPORTED
        assert "BTF" in session.slots["sched"].reason
        assert session.slots["sched-bcc"].state is State.ON
        assert session.read()["sched-bcc"].events > 0
    finally:
        session.stop()


def test_absent_bcc_is_a_named_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the distribution's Python has no bcc the state says what to install."""
    absent = {"sched-bcc": lambda: SchedBcc(Path(sys.executable))}
    monkeypatch.setattr(session_module, "FALLBACKS", absent)
    session = Session([Sched()], loader=Loader.BCC)
    session.start()
    assert session.slots["sched-bcc"].state is State.NOT_SUPPORTED
    assert "python3-bpfcc" in session.slots["sched-bcc"].reason
    assert session.read() == {}


def test_dead_helper_is_a_named_state(bcc: Loaded) -> None:
    """A helper that was killed makes its probe failed, with a reason, and can be started again."""
    os.kill(helper_of(os.getpid()), signal.SIGKILL)
    assert bcc.session.read() == {}
    assert bcc.session.slots["sched-bcc"].state is State.FAILED
    assert "helper" in bcc.session.slots["sched-bcc"].reason
    assert bcc.session.attach("sched-bcc") is State.ON
    assert bcc.read().events >= 0


def test_helper_ends_with_its_parent() -> None:
    """When the agent is killed its helper goes too, and with it the programs."""
    program = (
        "import time; from ebpf.session import *; s = Session([], loader=Loader.BCC); s.start();"
        "print(s.slots['sched-bcc'].state, flush=True); time.sleep(600)"
    )
    agent = subprocess.Popen((sys.executable, "-c", program), stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    assert agent.stdout.readline() == "on\n"
    helper = helper_of(agent.pid)
    agent.kill()
    agent.communicate()
    for _ in range(500):
        if not Path(f"/proc/{helper}/fd/0").exists():
            return
        time.sleep(0.02)
    pytest.fail("the helper is still there")


def test_nothing_is_left_behind() -> None:
    """After a session neither mounts nor the modules' folder differ, and no helper is there."""

    def state() -> tuple[list[str], list[str]]:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        ours = [line for line in mounts if "tracefs" in line or " /sys/fs/bpf " in line]
        return ours, sorted(map(str, Path("/lib").glob("modules/*/*")))

    before = state()
    loaded = load(Loader.BCC)
    while_on = state()
    helper = helper_of(os.getpid())
    loaded.session.stop()
    loaded.session.stop()
    assert while_on == before
    assert state() == before
    assert not Path(f"/proc/{helper}").exists()


@pytest.mark.skipif(
    os.geteuid() != 0 or find_hierarchy().hierarchy is Hierarchy.UNIFIED,
    reason="needs a v1 CPU hierarchy, where processes are looked up",
)
def test_brief_process_counts_in_its_parents_cgroup(bcc: Loaded) -> None:
    """Processes too brief to be looked up are charged to the cgroup that they were born in."""
    brief = ("import os\nfor _ in range(97):\n    if os.fork() == 0: os._exit(0)\n    os.wait()",)
    with cgroups("brief") as [cgroup], Gated(brief).put(cgroup, CPU) as program:
        before = histogram(bcc.read(), "runqueue.delay", cgroup.path).count
        program.go().wait_until_done()
        grown = histogram(bcc.read(), "runqueue.delay", cgroup.path).count - before
    assert grown >= 97


def helper_of(pid: int) -> int:
    """Return the process that a process has started as its helper."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += map(int, (task / "children").read_text().split())
    found = [c for c in children if b"bcc_loader" in Path(f"/proc/{c}/cmdline").read_bytes()]
    return found[-1]
