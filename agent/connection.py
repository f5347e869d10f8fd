"""Holding a connection to a deadline."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cut_at(sock: socket.socket, end_s: float) -> Iterator[None]:
    """Shut a connection down when the monotonic clock reaches `end_s`: an answer that drips in cannot hold it open.

    The timeout of a socket bounds each read, not their sum.
    """
    timer = threading.Timer(max(0.0, end_s - time.monotonic()), _shut_down, (sock,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _shut_down(sock: socket.socket) -> None:
    try:
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # SSLSocket's own is not for two threads
    except OSError:
        return  # it is closed already
