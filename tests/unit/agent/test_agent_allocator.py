"""The C library holds little memory back for the agent."""

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import threading, sys
from agent.allocator import hold_little
said = hold_little() if sys.argv[1] == "set" else None
go, done = threading.Barrier(9), threading.Barrier(9)
def work():
    go.wait(); kept = [bytes(1000 + n) for n in range(500)]; done.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]; go.wait(); done.wait(); [t.join() for t in threads]
import ctypes
ctypes.CDLL(None).malloc_stats()
print(said)
"""
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc's malloc_stats")


def run(*arguments: str, **environment: str) -> tuple[int, str]:
    """Return how many arenas a program with eight threads has, and what it says."""
    clean = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    done = subprocess.run(
        (sys.executable, "-c", PROGRAM, *arguments),
        capture_output=True,
        text=True,
        check=True,
        env={**clean, **environment},
    )
    return done.stderr.count("Arena "), done.stdout.strip()


@glibc
def test_threads_share_one_arena() -> None:
    """Without it each of some threads gets its own; with it there is one."""
    assert run("default")[0] > 1
    assert run("set") == (1, "True")


@glibc
def test_environment_has_the_last_word() -> None:
    """Who has tuned the allocator keeps what was chosen."""
    assert run("set", MALLOC_ARENA_MAX="3") == (3, "False")


ROUNDS = """
import gc, sys
from agent.allocator import collect_rarely
if sys.argv[1] == "set":
    collect_rarely()
before = sum(one["collections"] for one in gc.get_stats())
for _ in range(50):
    board = [{"n": [n]} for n in range(2000)]
print(sum(one["collections"] for one in gc.get_stats()) - before, gc.isenabled())
"""


def test_rounds_of_samples_do_not_set_the_collector_off() -> None:
    """What lives from one round to the next is no reason to look for cycles; the collector stays on."""
    counts = []
    for how in ("default", "set"):
        said = subprocess.run(
            (sys.executable, "-c", ROUNDS, how), capture_output=True, text=True, check=True
        )
        count, enabled = said.stdout.split()
        assert enabled == "True"
        counts.append(int(count))
    assert counts[1] < counts[0] / 10
