"""The demo's own stores, for real: they answer, and nothing is left of them however they end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from redis import Redis

from detector.cli.demo import stores

_WITHIN_S = 60.0


def _needs(scheme: str) -> pytest.MarkDecorator:
    why = stores.missing(scheme)
    return pytest.mark.skipif(why is not None, reason=f"needs a store: {why}")


@pytest.fixture
def started() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Hold what a test starts, and end it."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.terminate()
            process.wait(_WITHIN_S)
        if process.stdout:
            process.stdout.close()


def _start(scheme: str, started: list["subprocess.Popen[bytes]"]) -> str:
    """Start a store; return its address."""
    command = [sys.executable, "-m", "detector.cli.demo.store_process", scheme]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    started.append(process)
    assert process.stdout is not None
    event = json.loads(process.stdout.readline())
    assert event["event"] == "ready"
    return str(event["url"])


def _folder(url: str) -> Path:
    parts = urlsplit(url)
    host = parse_qs(parts.query).get("host")
    return Path(host[0]) if host else Path(parts.path).parent


def _processes_of(folder: Path) -> list[str]:
    """Return the processes that have the folder on their command line or work in it."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                here = (process / "cwd").readlink().is_relative_to(folder)
                if here or str(folder).encode() in (process / "cmdline").read_bytes():
                    found.append(process.name)
            except OSError:
                continue
    return found


def _soon(reached: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _WITHIN_S
    while not reached() and time.monotonic() < deadline:
        time.sleep(0.05)
    return reached()


def _answers(scheme: str, url: str) -> bool:
    if scheme == "redis":
        with Redis.from_url(url, socket_timeout=_WITHIN_S) as client:
            return bool(client.ping())
    with psycopg.connect(url, connect_timeout=30) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)


SCHEMES = [
    pytest.param("postgresql", marks=_needs("postgresql")),
    pytest.param("redis", marks=_needs("redis")),
]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_store_answers_to_its_address_and_leaves_nothing(
    scheme: str, started: list["subprocess.Popen[bytes]"]
) -> None:
    """It is in a folder that others cannot enter, and goes with it when it is told to."""
    url = _start(scheme, started)
    folder = _folder(url)

    assert _answers(scheme, url)
    assert folder.stat().st_mode & 0o077 == 0
    started[0].terminate()

    assert started[0].wait(_WITHIN_S) == 0
    assert (folder.exists(), _processes_of(folder)) == (False, [])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_store_whose_keeper_is_killed_dies_with_it(
    scheme: str, started: list["subprocess.Popen[bytes]"]
) -> None:
    """The kernel sees to that; only its files are left."""
    folder = _folder(_start(scheme, started))

    started[0].kill()

    assert _soon(lambda: not _processes_of(folder))
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@_needs("redis")
def test_a_store_ends_when_its_demo_is_killed(started: list["subprocess.Popen[bytes]"]) -> None:
    """Its folder, too, is gone then."""
    script = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-m', 'detector.cli.demo.store_process', 'redis'])\n"
        "time.sleep(600)\n"
    )
    demo = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
    started.append(demo)
    assert demo.stdout is not None
    folder = _folder(json.loads(demo.stdout.readline())["url"])

    demo.kill()

    assert _soon(lambda: not folder.exists())
    assert _soon(lambda: not _processes_of(folder))


@_needs("redis")
def test_a_store_that_stands_still_ends_all_the_same(
    started: list["subprocess.Popen[bytes]"],
) -> None:
    """The fault stops it, and the demo may be told to end meanwhile."""
    url = _start("redis", started)
    folder = _folder(url)
    with Redis.from_url(url, socket_timeout=_WITHIN_S) as client:
        pid = int(client.info("server")["process_id"])
    os.kill(pid, signal.SIGSTOP)

    started[0].terminate()

    assert started[0].wait(_WITHIN_S) == 0
    assert not folder.exists()


def test_an_unknown_store_is_refused() -> None:
    """With those that there are."""
    command = [sys.executable, "-m", "detector.cli.demo.store_process", "oracle"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ended.returncode == 2
    assert ended.stderr == "which store? one of postgresql, redis\n"
    assert stores.missing("oracle") == "the demo knows no store for oracle://"
