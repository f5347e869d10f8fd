"""The socket on which a running agent is told to let go of the kernel: a word in, one line of JSON out."""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from agent.errors import CannotStartError

OFF = "off"
_log = logging.getLogger(__name__)
_ANSWER_BYTES = 1 << 16


class Answer(msgspec.Struct, frozen=True):
    """What an agent says of `off`."""

    pid: int
    detached: list[str]
    took_s: float


class Control:
    """Serves one agent's socket; an agent that cannot have one works all the same, and says so."""

    def __init__(self, folder: Path, off: Callable[[], list[str]]) -> None:
        self._path = folder / f"{os.getpid()}.sock"
        self._off = off
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; only this user may connect."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _sweep(self._path.parent)
            with _short(self._path) as name:
                listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                listening.bind(name)
            self._path.chmod(0o600)
        except OSError as exc:
            lost = "tailcause-agent off cannot reach this agent"
            _log.warning(
                "event=no_control_socket path=%s why=%r lost=%r", self._path, str(exc), lost
            )
            return
        self._server = await asyncio.start_unix_server(self._answer, sock=listening)

    async def stop(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(5):
                word = (await reader.readline()).decode(errors="replace").strip()
                if word == OFF:
                    begun_s = time.monotonic()
                    detached = await asyncio.to_thread(self._off)
                    took_s = round(time.monotonic() - begun_s, 3)
                    writer.write(msgspec.json.encode(Answer(os.getpid(), detached, took_s)) + b"\n")
                    await writer.drain()


def _sweep(folder: Path) -> None:
    """Remove the sockets of agents that were killed, and one that an earlier process of this pid left."""
    for path in folder.glob("*.sock"):
        if path.stem == str(os.getpid()) or not Path("/proc", path.stem).exists():
            path.unlink(missing_ok=True)


def tell_off(folder: Path, timeout_s: float = 5.0) -> Iterator[Answer]:
    """Tell every running agent of a folder to detach; sockets of agents that are gone are removed."""
    try:
        sockets = sorted(folder.glob("*.sock"))
    except PermissionError as exc:
        raise CannotStartError(f"{folder}: {exc.strerror}: run it as the agent's user") from exc
    for path in sockets:
        answer = _tell(path, timeout_s)
        if answer is not None:
            yield answer


def _tell(path: Path, timeout_s: float) -> Answer | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(timeout_s)
        try:
            with _short(path) as name:
                caller.connect(name)
            caller.sendall(f"{OFF}\n".encode())
            with caller.makefile("rb") as answers:
                return msgspec.json.decode(answers.readline(_ANSWER_BYTES), type=Answer)
        except ConnectionRefusedError:  # killed before it could remove its socket
            path.unlink(missing_ok=True)
            return None
        except PermissionError as exc:
            raise CannotStartError(f"{path}: {exc.strerror}: run it as the agent's user") from exc
        except (OSError, msgspec.DecodeError) as exc:
            raise CannotStartError(
                f"the agent of {path} does not answer: stop it, that detaches everything too"
            ) from exc


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """Give a socket's path a name that fits the 108 bytes of an address, however deep its folder lies."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
