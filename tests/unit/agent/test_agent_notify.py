"""The service manager is told what systemd expects, over a real datagram socket."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.notify import Notifier, from_environment


@contextlib.contextmanager
def manager(address: str) -> Iterator[socket.socket]:
    """Listen as systemd does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        listening.settimeout(10)
        yield listening


def told(listening: socket.socket) -> dict[str, str]:
    """Return the assignments of one datagram."""
    return dict(line.split("=", 1) for line in listening.recv(4096).decode().split("\n"))


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_states(tmp_path: Path, kind: str) -> None:
    """Ready, reloading with its time, and stopping arrive; either kind of socket will do."""
    address = str(tmp_path / "n") if kind == "path" else f"@tailcause-test-{os.getpid()}"
    environ = {"NOTIFY_SOCKET": address, "HOME": "/"}
    with manager(address) as listening:
        notifier = from_environment(environ)
        notifier.ready("otlp_port=1\nx")
        assert told(listening) == {"READY": "1", "STATUS": "otlp_port=1 x"}
        before_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        notifier.reloading()
        reloading = told(listening)
        assert reloading["RELOADING"] == "1"
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        assert before_us <= int(reloading["MONOTONIC_USEC"]) <= now_us
        notifier.stopping()
        assert told(listening) == {"STOPPING": "1", "STATUS": "draining"}
    assert environ == {"HOME": "/"}


async def test_watchdog_follows_the_loop(tmp_path: Path) -> None:
    """Signs of life come at half the manager's patience while the loop runs, none while it hangs."""
    address = str(tmp_path / "n")
    with manager(address) as listening:
        notifier = from_environment({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "200000"})
        watching = asyncio.create_task(notifier.watch(lambda: "fine"))
        begun_s = time.monotonic()
        for _ in range(3):
            assert await asyncio.to_thread(told, listening) == {"WATCHDOG": "1", "STATUS": "fine"}
        assert time.monotonic() - begun_s >= 0.15
        listening.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                listening.recv(4096)
        time.sleep(0.5)  # noqa: ASYNC251  the loop hangs: that is what is tested
        with pytest.raises(BlockingIOError):
            listening.recv(4096)
        watching.cancel()


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"NOTIFY_SOCKET": "vsock:2:1"},
        {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "soon"},
        {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
    ],
)
async def test_no_watchdog(environ: dict[str, str]) -> None:
    """Without a manager, with one that expects nothing or another process, there is nothing to do."""
    async with asyncio.timeout(10):
        await from_environment(environ).watch(lambda: "")


def test_manager_that_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A socket that nobody listens on is told once and stops nothing."""
    notifier = Notifier(str(tmp_path / "none"))
    notifier.ready("")
    notifier.stopping()
    assert [record.getMessage().split()[0] for record in caplog.records] == [
        "event=no_service_manager"
    ]
