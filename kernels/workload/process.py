"""What every server process of the workload does first: its socket, and the signal that ends it."""

import asyncio
import os
import signal
import socket

from kernels.errors import WorkloadError

BACKLOG = 512


def stop_signal() -> asyncio.Event:
    """Return an event that the first SIGTERM or SIGINT sets; the second one ends the process."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def first() -> None:
        stop.set()
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in numbers:
        loop.add_signal_handler(number, first)
    return stop


def listener(host: str, port: int, listen_fd: int | None) -> socket.socket:
    """Adopt the inherited listening socket, or open one."""
    return _open(host, port) if listen_fd is None else _adopt(listen_fd)


def _adopt(listen_fd: int) -> socket.socket:
    try:
        adopted = socket.socket(fileno=listen_fd)
        listening = adopted.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise WorkloadError(f"--listen-fd {listen_fd}: {error.strerror}") from error
    if not listening:
        raise WorkloadError(f"--listen-fd {listen_fd}: not a listening socket")
    return adopted


def _open(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise WorkloadError(
            f"cannot listen on {host}:{port}: {reason}: pass another --port"
        ) from error
