"""Workloads whose truth is known, each in a cgroup of its own: for the probes' tests.

A program runs gated: it starts, is moved into its cgroup and onto its CPU, and goes on when it is told to.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ebpf.cgroupids import find_hierarchy
from ebpf.layout import Hierarchy

PYTHON = (sys.executable, "-I", "-S")
LEDGER_SUBJECT = Path(__file__).with_name("ledger_subject.py")

HOG = ("while True: pass",)
HALF_BUSY = (
    """
import time
while True:
    end = time.perf_counter() + 0.003
    while time.perf_counter() < end: pass
    time.sleep(0.002)
""",
)
SLEEPER = ("import time\nfor _ in range(int(sys.argv[1])): time.sleep(0.0005)",)
BURSTS = (
    """
import time
for _ in range(int(sys.argv[1])):
    end = time.thread_time() + 0.002
    while time.thread_time() < end:
        for _ in range(1000): pass
    time.sleep(0.001)
""",
)
PING_PONG = (
    """
import os
there, back = os.pipe(), os.pipe()
if os.fork() == 0:
    while os.read(there[0], 1): os.write(back[1], b"x")
""",
    """
for _ in range(int(sys.argv[1])):
    os.write(there[1], b"x")
    os.read(back[0], 1)
""",
)
"""Programs in stages, each of which waits until it is told to go."""

_SHARES_OF_NICE_0, _STEP_OF_NICE = 1024, 1.25


class Cgroup:
    """A cgroup below the hierarchy that has the CPU controller; removed on leaving, with what runs in it."""

    def __init__(self, path: str) -> None:
        mounted = find_hierarchy()
        self.path = path
        self.unified = mounted.hierarchy is Hierarchy.UNIFIED
        self.directory = mounted.mount / path.lstrip("/")
        if self.unified:
            (self.directory.parent / "cgroup.subtree_control").write_text("+cpu")
        self.directory.mkdir()

    def set_quota(self, quota_us: int, period_us: int = 100_000) -> None:
        """Limit its CPU time."""
        if self.unified:
            (self.directory / "cpu.max").write_text(f"{quota_us} {period_us}")
        else:
            (self.directory / "cpu.cfs_period_us").write_text(str(period_us))
            (self.directory / "cpu.cfs_quota_us").write_text(str(quota_us))

    def yield_as_nice(self, nice: int) -> None:
        """Give it the weight that a task of this niceness has: within a cgroup, niceness does not reach outside."""
        if self.unified:
            (self.directory / "cpu.weight.nice").write_text(str(nice))
        else:
            shares = max(2, round(_SHARES_OF_NICE_0 / _STEP_OF_NICE**nice))
            (self.directory / "cpu.shares").write_text(str(shares))

    def add(self, pid: int) -> None:
        """Move a process in."""
        (self.directory / "cgroup.procs").write_text(str(pid))

    def pids(self) -> list[int]:
        """Return the processes in it."""
        return [int(pid) for pid in (self.directory / "cgroup.procs").read_text().split()]

    def cpu_s(self) -> float:
        """Read how much CPU time its processes have used, as the kernel says."""
        total_ns = 0
        for pid in self.pids():
            for task in Path(f"/proc/{pid}/task").iterdir():
                total_ns += int((task / "schedstat").read_text().split()[0])
        return total_ns / 1e9

    def remove(self) -> None:
        """Remove it once its processes have gone."""
        for _ in range(250):
            try:
                self.directory.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.02)
            else:
                return


@dataclass(frozen=True)
class Switches:
    """What the kernel itself counted for some processes."""

    voluntary: int
    involuntary: int
    run_delay_s: float

    @property
    def total(self) -> int:
        """Switches away from their threads."""
        return self.voluntary + self.involuntary

    def since(self, earlier: "Switches") -> "Switches":
        """Subtract an earlier reading."""
        return Switches(
            self.voluntary - earlier.voluntary,
            self.involuntary - earlier.involuntary,
            self.run_delay_s - earlier.run_delay_s,
        )


def switches(pids: Sequence[int]) -> Switches:
    """Add up the kernel's own counters of all threads of some processes."""
    voluntary = involuntary = delay_ns = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            status = (task / "status").read_text()
            counts = re.findall(r"^(?:non)?voluntary_ctxt_switches:\s+(\d+)", status, re.MULTILINE)
            voluntary, involuntary = voluntary + int(counts[0]), involuntary + int(counts[1])
            delay_ns += int((task / "schedstat").read_text().split()[1])
    return Switches(voluntary, involuntary, delay_ns / 1e9)


class Gated:
    """A program whose stages wait for `go`; it says when one is done, and stays until it is closed."""

    def __init__(self, stages: Sequence[str], *arguments: str) -> None:
        gated = "\n".join(
            f"sys.stdin.readline()\n{stage}\nprint('done', flush=True)" for stage in stages
        )
        self.process = subprocess.Popen(
            (*PYTHON, "-c", f"import sys\n{gated}\nsys.stdin.readline()", *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def put(self, cgroup: Cgroup | None = None, cpu: int | None = None) -> Self:
        """Place it before it goes."""
        if cgroup is not None:
            cgroup.add(self.pid)
        if cpu is not None:
            os.sched_setaffinity(self.pid, {cpu})
        return self

    def go(self) -> Self:
        """Let the next stage run."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self

    def wait_until_done(self) -> Self:
        """Wait until the stage is done and the program asleep."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "done\n"
        wait_until_asleep(self.pid)
        return self

    def children(self) -> list[int]:
        """Return the processes that it has started."""
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in listed.split()]

    def close(self) -> None:
        """End it, and what it has started."""
        for pid in [*self.children(), self.pid]:
            os.kill(pid, 9)
        self.process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def wait_until_asleep(pid: int) -> None:
    """Wait until a process has left the CPU and waits for something."""
    for _ in range(500):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "S":
            return
        time.sleep(0.01)
    raise TimeoutError(f"process {pid} does not fall asleep")


@contextmanager
def cgroups(*names: str, yielding: bool = True) -> Iterator[list[Cgroup]]:
    """Make sibling cgroups below one of our own, which yields to the rest of the machine as we do.

    Those with a small quota need not yield, and had better not where the quota shall be used up.
    """
    parent = Cgroup(f"/tctest-{os.getpid()}-{time.monotonic_ns() % 10**9}")
    made: list[Cgroup] = []
    try:
        if yielding:
            parent.yield_as_nice(os.nice(0))
        made += [Cgroup(f"{parent.path}/{name}") for name in names]
        yield made
    finally:
        for cgroup in (*made, parent):
            cgroup.remove()


@contextmanager
def running(
    program: Sequence[str], count: int, cgroup: Cgroup | None, cpu: int | None
) -> Iterator[None]:
    """Run some processes of an endless program meanwhile; they have begun when the block is entered."""
    started = [Gated(("pass", *program)).put(cgroup, cpu) for _ in range(count)]
    try:
        for one in started:
            one.go().wait_until_done()
        for one in started:
            one.go()
        time.sleep(0.05)
        yield
    finally:
        for one in started:
            one.close()


@dataclass(frozen=True)
class Truth:
    """What the subject and the kernel's own counters say about one span, none of it through BPF."""

    span_id: str
    pid: int
    wall_s: float
    cpu_s: float
    run_delay_s: float
    throttled_s: float
    asked_s: float | None
    """For how long it asked to be blocked, when that is known."""

    @property
    def blocked_s(self) -> float:
        """Time neither on a CPU nor in a run queue; a hypervisor's theft is in it."""
        return self.wall_s - self.cpu_s - self.run_delay_s

    @property
    def at_least_blocked_s(self) -> float:
        """Time blocked for certain: without what a hypervisor may have taken."""
        return self.blocked_s if self.asked_s is None else self.asked_s

    @property
    def at_most_on_cpu_s(self) -> float:
        """CPU time with what a hypervisor may have taken: the kernel does not count that as the thread's."""
        return max(self.cpu_s, self.wall_s - self.run_delay_s - self.at_least_blocked_s)


class LedgerSubject:
    """A process that does one known thing in a span, each time it is told to."""

    def __init__(self, library: Path, cgroup: Cgroup | None = None, cpu: int | None = None) -> None:
        self._cgroup = cgroup
        self._process = subprocess.Popen(
            (*PYTHON, str(LEDGER_SUBJECT), str(library)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if cgroup is not None:
            cgroup.add(self._process.pid)
        if cpu is not None:
            os.sched_setaffinity(self._process.pid, {cpu})

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, task: str, **arguments: object) -> list[Truth]:
        """Let it do a task; return the truth about each span that it made."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        cpu_stat = str(self._cgroup.directory / "cpu.stat") if self._cgroup else None
        asked = {"task": task, "cpu_stat": cpu_stat, **arguments}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        said: list[dict[str, Any]] = json.loads(self._process.stdout.readline())
        return [Truth(**one, pid=self.pid) for one in said]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()
