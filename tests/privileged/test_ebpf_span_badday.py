"""Spans that do not end as they should: on another thread, after a fork or an exec, or never."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ebpf.layout import Wait
from tests.support.probe_session import (
    close_to,
    needs_probes,
)
from tests.support.span_calls import Spans

pytestmark = [pytest.mark.privileged, needs_probes]


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
