"""What the probe costs a program from end to end: paired, interleaved runs with a control."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from ebpf.libbpf import Library
from ebpf.probes.sched import Sched
from ebpf.probes.span import SpanProbe, SpanWaits
from ebpf.reading import Histogram, Readings
from ebpf.session import BUILT
from tests.bench.ebpf_cost import WrongCountError, attached
from tests.bench.paired import Estimate, estimate
from tests.bench.peers import Pipe, running
from tests.support.kernel_workloads import PING_PONG, Gated, cgroups, switches, wait_until_asleep
from tests.support.live_workload import load, workload

PRIME = 997


def check_counts(cpu: int) -> int:
    """Play a prime number of rounds of ping-pong; the probe must count as the kernel does. Return the count."""
    with (
        attached(Sched()) as session,
        cgroups("bench") as [cgroup],
        Gated(PING_PONG, str(PRIME)).put(cgroup, cpu) as program,
    ):
        program.go().wait_until_done()
        pids = cgroup.pids()
        for pid in pids:
            wait_until_asleep(pid)
        before, kernel_before = delays(session.read()["sched"], cgroup.path), switches(pids)
        program.go().wait_until_done()
        for pid in pids:
            wait_until_asleep(pid)
        after, kernel_after = delays(session.read()["sched"], cgroup.path), switches(pids)
    counted, kernel = after - before, kernel_after.since(kernel_before).total
    if counted != kernel or counted < 2 * PRIME:
        raise WrongCountError(f"{counted} switches counted, {kernel} by the kernel")
    return counted


def delays(readings: Readings, cgroup: str) -> int:
    """Return how many run-queue delays of a cgroup were counted."""
    return sum(
        one.value.count
        for one in readings.series
        if isinstance(one.value, Histogram) and one.labels["cgroup"] == cgroup
    )


@dataclass(frozen=True)
class Round:
    """Seconds of one round: alone, with our probe, alone, with runqlat, alone."""

    alone_s: tuple[float, float, float]
    ours_s: float
    runqlat_s: float

    @property
    def ours(self) -> float:
        """How much slower with our probe than in the runs beside it."""
        return self.ours_s / mean(self.alone_s[:2]) - 1

    @property
    def runqlat(self) -> float:
        """How much slower with runqlat."""
        return self.runqlat_s / mean(self.alone_s[1:]) - 1

    @property
    def control(self) -> float:
        """How much slower the middle run alone than the others alone: 0 but for noise."""
        return self.alone_s[1] / mean((self.alone_s[0], self.alone_s[2])) - 1


@dataclass(frozen=True)
class Slowdown:
    """What all rounds say together."""

    ours: Estimate
    runqlat: Estimate
    control: Estimate
    share: Estimate
    """Our slowdown over runqlat's."""


def one_round(pipe: Pipe, library: Library) -> Round:
    """Run the pipe five times: A B A C A."""
    first_s = pipe.seconds()
    with attached(Sched()):
        ours_s = pipe.seconds()
    second_s = pipe.seconds()
    with running("runqlat", library):
        runqlat_s = pipe.seconds()
    return Round((first_s, second_s, pipe.seconds()), ours_s, runqlat_s)


def slowdown(rounds: Sequence[Round]) -> Slowdown:
    """Estimate the medians over all rounds."""

    def share(some: Sequence[Round]) -> float:
        return median(r.ours for r in some) / median(r.runqlat for r in some)

    return Slowdown(
        estimate(rounds, lambda some: median(r.ours for r in some)),
        estimate(rounds, lambda some: median(r.runqlat for r in some)),
        estimate(rounds, lambda some: median(r.control for r in some)),
        estimate(rounds, share),
    )


@dataclass(frozen=True)
class WorkloadEvents:
    """What a served model under load makes of events that our programs see, and the CPU that it uses."""

    switches_per_s: float
    spans_per_s: float
    cpu_share: float
    """CPU seconds of the server per second."""

    def cost(self, switch_ns: float, span_us: float) -> float:
        """Return what our programs take, as a part of the CPU time of the server."""
        taken = self.switches_per_s * switch_ns / 1e9 + self.spans_per_s * span_us / 1e6
        return taken / self.cpu_share


def workload_events(seconds: float) -> WorkloadEvents:
    """Serve requests for a while and count."""
    spans: list[SpanWaits] = []
    probe = SpanProbe((BUILT / "libtailcause_span.so",), spans.append)
    with workload() as served, load(served.url), attached(Sched(), probe) as session:
        time.sleep(1.0)
        pid = int(served.told()["server_pid"])
        probe.poll()
        spans.clear()
        events, cpu_s = delays(session.read()["sched"], served.cgroup), cpu_seconds(pid)
        began_s = time.monotonic()
        time.sleep(seconds)
        took_s = time.monotonic() - began_s
        used_s = cpu_seconds(pid) - cpu_s
        counted = delays(session.read()["sched"], served.cgroup) - events
        opened = sum(span.pid == pid for span in spans)
    return WorkloadEvents(counted / took_s, opened / took_s, used_s / took_s)


def cpu_seconds(pid: int) -> float:
    """Read the CPU time of all threads of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
