"""Undoes what its owner did when the owner dies, however it dies.

The reaper is a process in a session of its own that holds the read end of a pipe. The owner
writes each undo action down the pipe BEFORE it makes the change; when the pipe reaches its end,
because the owner closed it or was killed, the reaper performs the actions, last one first.
"""

import argparse
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Self

import msgspec

from kernels.errors import WorkloadError
from kernels.supervisor.actions import Action, perform

log = logging.getLogger(__name__)

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LEFT_BEHIND = 1


class Add(msgspec.Struct, frozen=True, tag="add"):
    """Record an action under a number."""

    number: int
    action: Action


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """The action is not needed any more."""

    number: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The owner leaves and nothing is left to do."""


Message = Add | Forget | Done


class Reaper:
    """The owner's end: what is recorded here is undone even if this process is killed."""

    def __init__(self, process: subprocess.Popen[bytes], pipe_fd: int) -> None:
        self._process = process
        self._pipe_fd = pipe_fd
        self._pending: dict[int, Action] = {}
        self._next = 0

    @classmethod
    def start(cls, keep_fds: Sequence[int] = ()) -> Self:
        """Start the process; it keeps `keep_fds` (a lock, say) open until it has finished."""
        read_fd, write_fd = os.pipe()
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "kernels.supervisor.reaper", "--fd", str(read_fd)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(read_fd, *keep_fds),
                start_new_session=True,
                preexec_fn=_ignore_signals,  # noqa: PLW1509 - set before exec, so no gap is left
            )
        except OSError as exc:
            os.close(write_fd)
            raise WorkloadError(f"cannot start the reaper: {exc}") from exc
        finally:
            os.close(read_fd)
        return cls(process, write_fd)

    @property
    def pid(self) -> int:
        """The reaper's process id."""
        return self._process.pid

    def add(self, action: Action) -> int:
        """Record an undo action; call it before making the change. Returns its number."""
        self._next += 1
        self._pending[self._next] = action
        self._send(Add(self._next, action))
        return self._next

    def forget(self, number: int) -> None:
        """Take an action off the list."""
        self._pending.pop(number, None)
        self._send(Forget(number))

    def release(self) -> None:
        """Leave without undoing anything."""
        self._pending.clear()
        self._send(Done())
        self._close()

    def undo(self) -> bool:
        """Have everything undone now; False when something could not be, which is logged."""
        status = self._close()
        if status in (0, LEFT_BEHIND):
            return status == 0
        log.warning("reaper gone; undoing here status=%s", status)
        return undo_all(list(self._pending.values()))

    def _send(self, message: Message) -> None:
        """Write one line; if the reaper was killed, `undo` works from our own list."""
        line = memoryview(msgspec.json.encode(message) + b"\n")
        try:
            while line:
                line = line[os.write(self._pipe_fd, line) :]
        except BrokenPipeError:
            log.warning("reaper gone; only a clean exit undoes now")

    def _close(self) -> int:
        os.close(self._pipe_fd)
        return self._process.wait()


def undo_all(actions: Sequence[Action]) -> bool:
    """Perform actions last first; one that fails is logged and does not stop the others."""
    complete = True
    for action in reversed(actions):
        try:
            perform(action)
        except (WorkloadError, OSError, ValueError) as exc:
            complete = False
            log.error("undo failed action=%s error=%r", action, str(exc))  # noqa: TRY400 - no trace
    return complete


def serve(read_fd: int) -> int:
    """Read messages until the owner is done or gone, then undo; the exit code."""
    pending: dict[int, Action] = {}
    with os.fdopen(read_fd, "rb") as pipe:
        for line in pipe:
            if not line.endswith(b"\n"):  # the owner died inside a write, before the change
                break
            message = msgspec.json.decode(line, type=Message)
            if isinstance(message, Add):
                pending[message.number] = message.action
            elif isinstance(message, Forget):
                pending.pop(message.number, None)
            else:
                return 0
    return 0 if undo_all(list(pending.values())) else LEFT_BEHIND


def _ignore_signals() -> None:
    for signum in _IGNORED:
        signal.signal(signum, signal.SIG_IGN)


def main() -> int:
    """Entry point of the reaper process."""
    parser = argparse.ArgumentParser(prog="tailcause-reaper")
    parser.add_argument("--fd", type=int, required=True)
    logging.basicConfig(format="%(levelname)s reaper %(message)s", stream=sys.stderr)
    return serve(parser.parse_args().fd)


if __name__ == "__main__":
    sys.exit(main())
