"""Programs that run for a moment in a cgroup, and what the scheduler probe has counted for it."""

import sys
import time

from ebpf.reading import Readings
from ebpf.session import Session
from tests.support.kernel_workloads import Cgroup, Gated
from tests.support.probe_session import histogram

SOME_WAITS = ("import time\nfor _ in range(97): time.sleep(0.0005)",)


def run_in(cgroup: Cgroup) -> None:
    """Let a program sleep a few times in a cgroup, and end."""
    with Gated(SOME_WAITS).put(cgroup) as program:
        program.go().wait_until_done()


def switches_of(readings: Readings, cgroup: str) -> int:
    """Return how many switches a cgroup has had."""
    return histogram(readings, "runqueue.delay", cgroup).count


def goes_on(session: Session) -> bool:
    """Tell whether the scheduler probe counts."""
    for _ in range(100):
        if session.read()["sched"].events > 0:
            return True
        time.sleep(0.02)
    return False


def identity(cgroup: Cgroup) -> bytes:
    """Return a cgroup's id as the kernel's maps have it."""
    return cgroup.directory.stat().st_ino.to_bytes(8, sys.byteorder)
