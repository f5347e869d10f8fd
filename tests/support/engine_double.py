"""A server of vLLM's shape: the API process waits, another process does the work, the span is made when all is over.

python engine_double.py        one JSON task a line in; one JSON line out with the span's times and the truth about it
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ENGINE = "engine"


def burn(seconds: float) -> None:
    """Use up CPU time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def lock(seconds: float) -> None:
    """Wait for a lock that another thread holds."""
    held = threading.Lock()
    held.acquire()
    threading.Timer(seconds, held.release).start()
    held.acquire()


def mixed(seconds: float) -> None:
    """Work for a third of the time, sleep for the rest, in turns."""
    for _ in range(10):
        burn(seconds / 30)
        time.sleep(seconds / 15)


TASKS: dict[str, Callable[[float], None]] = {
    "busy": burn,
    "sleep": time.sleep,
    "lock": lock,
    "mixed": mixed,
}


def run_delay_s() -> float:
    """Return this thread's time in run queues, as schedstat has it."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def engine() -> None:
    """Do the tasks; a thread that never works idles beside.

    The truth about a task: its CPU time, its time blocked, and the wait for the CPU since the task before (the engine
    must first wake up).
    """
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    delay_s = run_delay_s()
    for line in sys.stdin:
        task = json.loads(line)
        wall_s, cpu_s, begun_s = time.perf_counter(), time.thread_time(), run_delay_s()
        TASKS[task["task"]](task["seconds"])
        wall_s, cpu_s = time.perf_counter() - wall_s, time.thread_time() - cpu_s
        delay_s, ended_s = run_delay_s() - delay_s, run_delay_s()
        truth = {
            "cpu_s": cpu_s,
            "run_delay_s": delay_s,
            "blocked_s": wall_s - cpu_s - (ended_s - begun_s),
        }
        delay_s = ended_s
        say(truth)


def api() -> None:
    """Hand tasks to the engine and wait; the request is reported, with its start, when it has ended."""
    worker = subprocess.Popen(
        (sys.executable, "-I", "-S", __file__, ENGINE),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    say({"pid": os.getpid(), "engine_pid": worker.pid})
    for line in sys.stdin:
        start_unix_ns = time.time_ns()
        worker.stdin.write(line)
        worker.stdin.flush()
        select.select([worker.stdout], [], [], 60)
        truth = json.loads(worker.stdout.readline())
        say({"start_unix_ns": start_unix_ns, "end_unix_ns": time.time_ns(), **truth})
    worker.stdin.close()
    worker.wait()


def say(record: dict[str, Any]) -> None:
    """Print one JSON line."""
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    engine() if ENGINE in sys.argv[1:] else api()
