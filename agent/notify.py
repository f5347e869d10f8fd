"""Tells the service manager how the agent fares: ready, reloading, stopping, alive.

Source: sd_notify(3) and systemd.service(5): newline-separated assignments in one datagram to $NOTIFY_SOCKET.
"""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, MutableMapping

_log = logging.getLogger(__name__)

_USEC = 1_000_000
_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """Sends states to `address`: a path, or `@name` in the abstract name space; empty: to nobody.

    `watchdog_s` is how long the manager waits for a sign of life; 0: it does not.
    """

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_s = watchdog_s
        self._reachable = True

    def ready(self, status: str) -> None:
        """Say that the agent serves, at the start or again after a reload."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Say that the configuration is read again."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000
        self._send("RELOADING=1", f"MONOTONIC_USEC={now_us}")

    def stopping(self) -> None:
        """Say that the agent drains."""
        self._send("STOPPING=1", "STATUS=draining")

    async def watch(self, status: Callable[[], str]) -> None:
        """Give a sign of life for ever, twice in the manager's patience; a loop that hangs gives none."""
        if not self._watchdog_s or not self._address:
            return
        while True:
            self._send("WATCHDOG=1", f"STATUS={status()}")
            await asyncio.sleep(self._watchdog_s / 2)

    def _send(self, *assignments: str) -> None:
        if not self._address:
            return
        text = "\n".join(one.replace("\n", " ") for one in assignments)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sending:
                sending.setblocking(False)
                sending.sendto(text.encode(), self._address)
            self._reachable = True
        except OSError as exc:
            if self._reachable:
                _log.warning("event=no_service_manager socket=%r why=%r", self._address, str(exc))
            self._reachable = False


def from_environment(environ: MutableMapping[str, str]) -> Notifier:
    """Return the notifier of a service, and take what it needs out of the environment: children are not meant."""
    address, usec, pid = (environ.pop(name, "") for name in _VARIABLES)
    watchdog_s = 0.0
    if pid in {"", str(os.getpid())}:
        with contextlib.suppress(ValueError):
            watchdog_s = max(0, int(usec or 0)) / _USEC
    return Notifier(address if address.startswith(("/", "@")) else "", watchdog_s)
