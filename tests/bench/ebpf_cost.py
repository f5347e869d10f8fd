"""What one event costs: from the kernel's statistics of programs, and for uprobes from a loop with and without."""

import mmap
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ebpf import progstats
from ebpf.libbpf import Library
from ebpf.probe import Probe
from ebpf.probes.sched import Sched
from ebpf.probes.span import SpanProbe, SpanWaits
from ebpf.progstats import RunStats
from ebpf.registry import PROBES
from ebpf.session import BUILT, Session, State
from tests.bench.peers import Pipe, running

PAGE = 4096
HOOK_LOOP = Path(__file__).with_name("span_loop.c")


class WrongCountError(Exception):
    """The probe did not count what happened: its speed does not matter."""


@contextmanager
def attached(*probes: Probe) -> Iterator[Session]:
    """Attach probes that must come up."""
    session = Session(probes)
    session.start()
    try:
        off = {n: s.reason for n, s in session.slots.items() if s.state is not State.ON}
        if off:
            raise RuntimeError(f"not attached: {off}")
        yield session
    finally:
        session.stop()


def library_of(session: Session) -> Library:
    """Return the loaded library of a session that is on."""
    if session.library is None:
        raise RuntimeError("the session is not started")
    return session.library


@dataclass(frozen=True)
class Cost:
    """Runs and time of some programs over an interval."""

    runs: int
    time_ns: int
    per_run_ns: float
    """The programs' mean costs added up: what an event costs that runs each of them once."""


def cost(before: list[RunStats], after: list[RunStats]) -> Cost:
    """Take the difference of two readings of the same programs."""
    ran = [(b.runs - a.runs, b.time_ns - a.time_ns) for a, b in zip(before, after, strict=True)]
    return Cost(
        sum(runs for runs, _ in ran),
        sum(ns for _, ns in ran),
        sum(ns / runs for runs, ns in ran if runs),
    )


def ours(session: Session, probe: str) -> list[RunStats]:
    """Read the statistics of one probe's programs."""
    library = library_of(session)
    return [progstats.read(library, fd) for fd in session.programs()[probe].values()]


def switch_ns(pipe: Pipe, *, ledger: bool) -> float:
    """Return what our program costs a switch; with the ledger the two tasks' waits are divided."""
    with attached(Sched()) as session:
        process = pipe.start()
        if ledger:
            session.watch([process.pid])
        with progstats.enabled(library_of(session)):
            before = ours(session, "sched")
            pipe.seconds(process)
            after = ours(session, "sched")
    switches = after[0].runs - before[0].runs  # the program for migrations is part of the cost
    return cost(before, after).time_ns / switches


def runqlat_ns(pipe: Pipe, library: Library) -> float:
    """Return what runqlat costs a switch and the wake-up that comes before it."""
    with running("runqlat", library) as peer, progstats.enabled(library):
        before = peer.stats(library)
        pipe.seconds()
        after = peer.stats(library)
    # three programs: the third, for new tasks, has next to no runs here
    busy = [(a, b) for a, b in zip(before, after, strict=True) if b.runs - a.runs > pipe.loops]
    return cost([a for a, _ in busy], [b for _, b in busy]).per_run_ns


@dataclass(frozen=True)
class DirectReads:
    """Reads of single pages past the page cache."""

    path: Path
    count: int
    seed: int = 7

    def run(self) -> None:
        """Do them, each waiting for the one before."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        pages = os.fstat(fd).st_size // PAGE
        source = random.Random(self.seed)
        with mmap.mmap(-1, PAGE) as buffer:
            for _ in range(self.count):
                os.preadv(fd, [buffer], source.randrange(pages) * PAGE)
        os.close(fd)


def block_io_ns(reads: DirectReads) -> float:
    """Return what our programs cost one request, from insertion to completion."""
    with attached(Sched(), PROBES["blkio"]()) as session:
        with progstats.enabled(library_of(session)):
            before, events = ours(session, "blkio"), session.read()["blkio"].events
            reads.run()
            spent = cost(before, ours(session, "blkio"))
            seen = session.read()["blkio"].events - events
        if seen < reads.count:
            raise WrongCountError(f"{reads.count} reads, {seen} events of the block I/O probe")
        return spent.time_ns / reads.count


def biolatency_ns(reads: DirectReads, library: Library) -> float:
    """Return what biolatency costs one request."""
    with running("biolatency", library) as peer, progstats.enabled(library):
        before = peer.stats(library)
        reads.run()
        return cost(before, peer.stats(library)).time_ns / reads.count


class SpanLoop:
    """A C program that opens and closes spans in a loop and says how long one took."""

    def __init__(self, folder: Path, spans: int) -> None:
        self._spans = spans
        self._program = folder / "span_loop"
        self.library = folder / "libtailcause_span.so"
        shutil.copy(BUILT / self.library.name, self.library)
        subprocess.run(
            ["cc", "-O2", "-Wall", "-Werror", str(HOOK_LOOP), "-o", str(self._program), "-ldl"],
            check=True,
        )

    def without_us(self) -> float:
        """Return a span's microseconds while nobody listens."""
        return self._run()

    def with_us(self) -> float:
        """Return a span's microseconds while the ledger is kept; every span must come out."""
        delivered: list[SpanWaits] = []
        probe = SpanProbe((self.library,), delivered.append)
        with attached(Sched(), probe) as session:
            took_us = self._run()
            probe.poll()
            dropped = session.read()["span"].dropped
        if len(delivered) != self._spans or dropped["spans_lost"]:
            raise WrongCountError(f"{self._spans} spans, {len(delivered)} delivered, {dropped}")
        return took_us

    def _run(self) -> float:
        said = subprocess.run(
            [str(self._program), str(self.library), str(self._spans)],
            check=True,
            capture_output=True,
            text=True,
        )
        return float(said.stdout)
