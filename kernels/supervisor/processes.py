"""Starting processes that cannot outlive us, and ending exactly the process that was meant."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from kernels.errors import WorkloadError
from kernels.supervisor.files import write_existing

PR_SET_PDEATHSIG = 1
_POLL_S = 0.02


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None once it is gone.

    Together with the pid it names one process for ever, so a reused pid is never hit.
    """
    after_name = _after_name(pid)
    return int(after_name[19]) if after_name and after_name[0] != b"Z" else None


def _after_name(pid: int) -> list[bytes]:
    """Read the fields of proc(5) stat after the name, the state first; none of a process that is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return stat[stat.rindex(b")") + 2 :].split()


def kill_exact(pid: int, ticks: int, signum: int = signal.SIGKILL) -> bool:
    """Signal the process with this pid and start time; False when it is gone."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if start_ticks(pid) != ticks:
            return False
        signal.pidfd_send_signal(handle, signum)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def stop_exact(pid: int, ticks: int) -> bool:
    """SIGSTOP, and wait until it stands still; False when it is gone."""
    if not kill_exact(pid, ticks, signal.SIGSTOP):
        return False
    while (fields := _after_name(pid)) and fields[0] not in (b"T", b"t", b"Z"):
        time.sleep(_POLL_S)
    return start_ticks(pid) == ticks


def end_exact(pid: int, ticks: int, grace_s: float) -> None:
    """SIGTERM, up to `grace_s` to leave, then SIGKILL."""
    if grace_s > 0 and kill_exact(pid, ticks, signal.SIGTERM):
        deadline = time.monotonic() + grace_s
        while start_ticks(pid) == ticks and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    kill_exact(pid, ticks)


def spawn(
    argv: Sequence[str],
    *,
    procs_files: Sequence[Path] = (),
    pass_fds: Sequence[int] = (),
    stdout: int = subprocess.DEVNULL,
    niceness: int = 0,
) -> subprocess.Popen[bytes]:
    """Start a process in a session and cgroup of its own; the kernel kills it when we die.

    Call it from the main thread: the kernel watches the thread that forked, not the process.
    """
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            pass_fds=pass_fds,
            start_new_session=True,
            preexec_fn=_before_exec(procs_files, niceness),  # noqa: PLW1509 - callers have one thread
        )
    except subprocess.SubprocessError as exc:
        where = procs_files[0].parent if procs_files else "no cgroup"
        raise WorkloadError(f"cannot start {argv[0]} in {where}: {exc}") from exc


def set_niceness(pid: int, niceness: int) -> None:
    """Change the niceness of every thread of a process; one that has ended needs none."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), niceness)


def _before_exec(procs_files: Sequence[Path], niceness: int) -> Callable[[], None]:
    """Make the function that the child runs between fork and exec."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the kernel knew our wish
            os._exit(1)
        for file in procs_files:
            write_existing(file, "0")
        os.nice(niceness)

    return prepare
