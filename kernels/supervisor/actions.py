"""Undo actions as data: what one process records and another can perform after its death."""

import errno
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from kernels.errors import WorkloadError
from kernels.fakenvml.healing import HealGpu, heal_gpu
from kernels.supervisor.files import write_atomically, write_existing
from kernels.supervisor.namespaces import (
    RemoveNetwork,
    RunInNamespace,
    remove_network,
    run_in_namespace,
)
from kernels.supervisor.processes import end_exact, kill_exact

_DEADLINE_S = 5.0
_POLL_S = 0.02


class UndoError(WorkloadError):
    """An undo action did not reach its goal."""


class WriteFile(msgspec.Struct, frozen=True, tag="write_file"):
    """Write a value back; a file that is gone needs nothing."""

    path: str
    value: str


class RemoveFile(msgspec.Struct, frozen=True, tag="remove_file"):
    """Remove a file or socket."""

    path: str


class StampTime(msgspec.Struct, frozen=True, tag="stamp_time"):
    """Set one field of a JSON object in a file to the time of the undo, in unix seconds."""

    path: str
    field: str


class KillProcess(msgspec.Struct, frozen=True, tag="kill_process"):
    """End the process with this pid and start time, with `grace_s` after a SIGTERM."""

    pid: int
    start_ticks: int
    grace_s: float = 0.0


class ContinueProcess(msgspec.Struct, frozen=True, tag="continue_process"):
    """Let the process with this pid and start time go on after a SIGSTOP."""

    pid: int
    start_ticks: int


class KillCgroup(msgspec.Struct, frozen=True, tag="kill_cgroup"):
    """Kill every process in and below these cgroup directories."""

    directories: tuple[str, ...]


class RemoveCgroup(msgspec.Struct, frozen=True, tag="remove_cgroup"):
    """Remove these cgroup directories with all below them, and `ancestors` that are empty then."""

    directories: tuple[str, ...]
    ancestors: tuple[str, ...] = ()


class AskSupervisor(msgspec.Struct, frozen=True, tag="ask_supervisor"):
    """Send one request to a control socket and wait for the answer; nobody there is fine."""

    socket: str
    request: dict[str, Any]
    timeout_s: float = 60.0


Action = (
    WriteFile
    | RemoveFile
    | StampTime
    | KillProcess
    | ContinueProcess
    | KillCgroup
    | RemoveCgroup
    | RunInNamespace
    | RemoveNetwork
    | HealGpu
    | AskSupervisor
)


def perform(action: Action) -> None:
    """Carry out one action; a goal that is reached already is success."""
    _PERFORM[type(action)](action)


def _write_file(action: WriteFile) -> None:
    try:
        write_existing(Path(action.path), action.value)
    except OSError as exc:
        if exc.errno not in (errno.ENOENT, errno.ENODEV):  # both: the cgroup is gone
            raise


def _remove_file(action: RemoveFile) -> None:
    Path(action.path).unlink(missing_ok=True)


def _stamp_time(action: StampTime) -> None:
    path = Path(action.path)
    with suppress(FileNotFoundError):
        content = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        content[action.field] = time.time()
        write_atomically(path, msgspec.json.encode(content))


def _kill_process(action: KillProcess) -> None:
    end_exact(action.pid, action.start_ticks, action.grace_s)


def _continue_process(action: ContinueProcess) -> None:
    kill_exact(action.pid, action.start_ticks, signal.SIGCONT)


def _kill_cgroup(action: KillCgroup) -> None:
    """Kill in rounds until nobody is left: a forking process can escape one round."""
    deadline = time.monotonic() + _DEADLINE_S
    while pids := set(_pids_below(action.directories)):
        if time.monotonic() > deadline:
            raise UndoError(f"processes {sorted(pids)} in {action.directories[0]} will not die")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def _pids_below(directories: Iterable[str]) -> Iterator[int]:
    """Pid 0 stands for a process of another pid namespace; a signal to 0 would hit ourselves."""
    for directory in directories:
        for file in Path(directory).glob("**/cgroup.procs"):
            with suppress(OSError):  # the group went away while we looked
                yield from (pid for pid in map(int, file.read_text().split()) if pid > 0)


def _remove_cgroup(action: RemoveCgroup) -> None:
    for directory in map(Path, action.directories):
        if directory.exists():
            below = sorted((d for d in directory.glob("**/") if d != directory), reverse=True)
            for group in (*below, directory):
                _remove_group(group)
    for ancestor in action.ancestors:
        with suppress(OSError):  # still used by a neighbour, or gone
            Path(ancestor).rmdir()


def _remove_group(group: Path) -> None:
    """Remove one group; the kernel keeps it busy for a moment after its last process died."""
    deadline = time.monotonic() + _DEADLINE_S
    while True:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError as exc:
            if time.monotonic() > deadline:
                raise UndoError(f"cannot remove {group}: {exc.strerror}") from exc
            time.sleep(_POLL_S)
        else:
            return


def _ask_supervisor(action: AskSupervisor) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(action.timeout_s)
        with suppress(FileNotFoundError, ConnectionError):  # the run is over: nothing to put back
            client.connect(action.socket)
            client.sendall(msgspec.json.encode(action.request) + b"\n")
            client.makefile("rb").readline()


_PERFORM: dict[type[Any], Callable[[Any], None]] = {
    WriteFile: _write_file,
    RemoveFile: _remove_file,
    StampTime: _stamp_time,
    KillProcess: _kill_process,
    ContinueProcess: _continue_process,
    KillCgroup: _kill_cgroup,
    RemoveCgroup: _remove_cgroup,
    RunInNamespace: run_in_namespace,
    RemoveNetwork: remove_network,
    HealGpu: heal_gpu,
    AskSupervisor: _ask_supervisor,
}
