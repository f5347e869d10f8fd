"""The fault's end of a server's hook: what is asked for holds while this process keeps the connection."""

import socket
from pathlib import Path
from typing import BinaryIO

import msgspec

from kernels.faults.base import FaultContext, FaultError, Held
from kernels.supervisor.state import hook_socket
from kernels.workload.hook_requests import HookReply, HookRequest

NEEDS = ("--hook",)
_TIMEOUT_S = 20.0


def disturb(context: FaultContext, request: HookRequest) -> tuple[Held, ...]:
    """Have every server to hit disturbed; FaultError where one has no hook."""
    paths = [hook_socket(context.state_dir, server.instance) for server in context.servers()]
    return tuple(_Hold(path, request) for path in paths)


class _Hold:
    """One connection."""

    def __init__(self, path: Path, request: HookRequest) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_TIMEOUT_S)
        try:
            self._socket.connect(str(path))
            self._lines: BinaryIO = self._socket.makefile("rb")
            self._socket.sendall(msgspec.json.encode(request) + b"\n")
            self._expect("disturbed")
        except OSError as exc:
            self._socket.close()
            raise FaultError(
                f"no hook answers at {path}: start `tailcause-workload up --hook` ({exc})"
            ) from exc

    def let_go(self) -> None:
        """Close our side and wait until the server says that it is undisturbed; one that is gone is."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            self._expect("undone")
        except ConnectionError:
            pass
        finally:
            self._socket.close()

    def _expect(self, event: str) -> None:
        line = self._lines.readline()
        if not line:
            raise ConnectionError("the server is gone")
        reply = msgspec.json.decode(line, type=HookReply)
        if reply.event != event:
            raise FaultError(f"the server says {reply.event}: {reply.error or 'no reason given'}")
