"""The memory probe: a cgroup at its limit, pages read back from disk, and the OOM killer's victim."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ebpf.probes.mem import HOOKS, Mem, OomKill
from ebpf.reading import Histogram, Readings
from ebpf.session import Session, State
from tests.support.kernel_workloads import Cgroup, Gated, cgroups
from tests.support.memory_cgroup import MemoryLimit, why_no_memory_limit
from tests.support.probe_session import LOOSE, attached, bpf_files, needs_probes, number
from tests.support.slots import forget

pytestmark = [pytest.mark.privileged, needs_probes]
needs_limit = pytest.mark.skipif(bool(why_no_memory_limit()), reason=why_no_memory_limit())

PAGES = 211
MEBIBYTE = 1 << 20
READ_AGAIN = """
for _ in range(5):
    with open(sys.argv[1], "rb", buffering=0) as file:
        while file.read(1 << 20): pass
"""
TOUCH_PAGES = """
import mmap, os
file = os.open(sys.argv[1], os.O_RDONLY)
pages = mmap.mmap(file, 0, prot=mmap.PROT_READ)
pages.madvise(mmap.MADV_RANDOM)
"""
TOUCH_THEM = "for i in range(int(sys.argv[2])): pages[i * 4096 * 4]"
GROW = """
open("/proc/self/comm", "w").write("tc-victim")
held = [bytearray(b"x" * (1 << 20)) for _ in range(256)]
"""


@pytest.fixture
def session() -> Iterator[Session]:
    """Attach the memory probe."""
    with attached(Mem()) as started:
        yield started


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Write a file of 48 MB through to its disk and let it go from memory."""
    path = tmp_path / "pages"
    with path.open("wb") as written:
        for _ in range(48):
            written.write(os.urandom(MEBIBYTE))
        written.flush()
        os.fsync(written.fileno())
        os.posix_fadvise(written.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


@needs_limit
def test_a_cgroup_at_its_limit_stalls_and_no_other_does(session: Session, file: Path) -> None:
    """Reading more than fits, again and again, stalls the cgroup that does it, for less time than it took."""
    with ExitStack() as stack:
        limited, free = stack.enter_context(cgroups("limited", "free"))
        limit = stack.enter_context(MemoryLimit(limited, 24 * MEBIBYTE))
        tight = stack.enter_context(Gated((READ_AGAIN,), str(file))).put(limited)
        roomy = stack.enter_context(Gated((READ_AGAIN,), str(file))).put(free)
        limit.add(tight.pid)
        began_s = time.monotonic()
        tight.go().wait_until_done()
        took_s = time.monotonic() - began_s
        roomy.go().wait_until_done()
        readings = session.read()["mem"]

        assert limit.hits() > 0
        assert _stalls(readings, limited).keys() >= {"limit"}
        assert 0 < _stalls(readings, limited)["limit"].sum_s < took_s
        assert _stalls(readings, free) == {}


def test_major_faults_are_counted_exactly(session: Session, file: Path) -> None:
    """Touching a prime number of pages that are not in memory is what the kernel says; a slot that is given away begins at nothing."""
    with (
        cgroups("faulting") as (faulting,),
        Gated((TOUCH_PAGES, TOUCH_THEM), str(file), str(PAGES)).put(faulting) as process,
    ):
        process.go().wait_until_done()
        before_kernel, before = _major_faults(process.pid), _counted(session, faulting)
        process.go().wait_until_done()
        kernel = _major_faults(process.pid) - before_kernel

        assert _counted(session, faulting) - before == kernel
        assert kernel >= PAGES

        forget(session, "mem", faulting.path)
        assert _counted(session, faulting) == 0


@needs_limit
def test_an_oom_kill_names_the_victim(file: Path) -> None:
    """A process that outgrows its cgroup is delivered with its pid, its name and its cgroup, and counted."""
    kills: list[OomKill] = []
    with ExitStack() as stack:
        session = stack.enter_context(attached(Mem(kills.append)))
        (small,) = stack.enter_context(cgroups("small"))
        limit = stack.enter_context(MemoryLimit(small, 32 * MEBIBYTE, swap=False))
        victim = Gated((GROW,)).put(small)
        limit.add(victim.pid)
        victim.go().process.communicate()
        readings = session.read()["mem"]

        assert [(kill.pid, kill.comm, kill.cgroup) for kill in kills] == [
            (victim.pid, "tc-victim", small.path)
        ]
        assert time.monotonic() - kills[0].at_monotonic_s < 60
        assert number(readings, "mem.oom_kills", cgroup=small.path) == 1


@pytest.mark.skipif(not LOOSE, reason="needs a machine of its own (it compacts all memory)")
def test_compaction_stalls_whoever_asked_for_it(session: Session) -> None:
    """Compacting all memory by hand happens in the task that asks, so its cgroup has the stall."""
    compact = "open('/proc/sys/vm/compact_memory', 'w').write('1')"
    with cgroups("compacting") as (compacting,), Gated((compact,)).put(compacting) as process:
        process.go().wait_until_done()
        stalls = _stalls(session.read()["mem"], compacting)

        assert stalls["compaction"].count > 0


def test_a_missing_hook_is_a_named_state() -> None:
    """A kernel without one of the tracepoints: not supported, with its name, and nothing stays loaded."""
    before = bpf_files()
    session = Session([Mem(hooks={**HOOKS, "limit_end": "mm_of_the_future"})])
    session.start()
    try:
        slot = session.slots["mem"]
        assert slot.state is State.NOT_SUPPORTED
        assert "mm_of_the_future" in slot.reason
    finally:
        session.stop()

    assert bpf_files() == before


def _stalls(readings: Readings, cgroup: Cgroup) -> dict[str, Histogram]:
    return {
        reading.labels["stall"]: reading.value
        for reading in readings.series
        if reading.metric == "mem.stall"
        and reading.labels["cgroup"] == cgroup.path
        and isinstance(reading.value, Histogram)
    }


def _counted(session: Session, cgroup: Cgroup) -> float:
    return number(session.read()["mem"], "mem.major_faults", cgroup=cgroup.path)


def _major_faults(pid: int) -> int:
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(after_name[9])
