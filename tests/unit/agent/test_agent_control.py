"""`tailcause-agent off` reaches running agents through their sockets."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent.control import Answer, Control, tell_off
from agent.errors import CannotStartError
from agent.state import control_dir


@asynccontextmanager
async def listening(folder: Path, detached: list[str]) -> AsyncIterator[None]:
    """Serve a socket whose agent has these probes on."""
    control = Control(folder, lambda: detached)
    await control.start()
    try:
        yield
    finally:
        await control.stop()


async def told(folder: Path) -> list[Answer]:
    """Tell all agents of a folder, as another process would."""
    return await asyncio.to_thread(lambda: list(tell_off(folder, 5.0)))


async def test_agent_answers_what_it_let_go(tmp_path: Path) -> None:
    """The answer names the process and its probes; nobody else may connect."""
    async with listening(tmp_path / "agents", ["sched", "span"]):
        [path] = (tmp_path / "agents").iterdir()
        assert path.stat().st_mode & 0o777 == 0o600
        [answer] = await told(tmp_path / "agents")
        assert (answer.pid, answer.detached) == (os.getpid(), ["sched", "span"])
        assert answer.took_s < 5
    assert list((tmp_path / "agents").iterdir()) == []


async def test_folder_may_lie_deep(tmp_path: Path) -> None:
    """A path of more than the 108 bytes of a socket's address works."""
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    async with listening(deep, []):
        assert [answer.pid for answer in await told(deep)] == [os.getpid()]


async def test_socket_of_a_dead_agent_is_removed(tmp_path: Path) -> None:
    """A killed agent leaves its socket; it is no agent, and goes."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "1.sock"))
    assert await told(tmp_path) == []
    assert os.listdir(tmp_path) == []  # noqa: PTH208


async def test_killed_agents_are_swept_at_the_next_start(tmp_path: Path) -> None:
    """What a killed agent left does not pile up; a living process's socket stays."""
    for name in ("999999999", str(os.getppid())):
        (tmp_path / f"{name}.sock").touch()
    async with listening(tmp_path, []):
        left = sorted(os.listdir(tmp_path))  # noqa: PTH208
    assert left == sorted((f"{os.getppid()}.sock", f"{os.getpid()}.sock"))


async def test_silent_agent_is_told_of(tmp_path: Path) -> None:
    """An agent that hangs is one clear error."""
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / "1.sock"))
        hung.listen()
        with pytest.raises(CannotStartError, match="does not answer"):
            await asyncio.to_thread(lambda: list(tell_off(tmp_path, 0.1)))


async def test_agent_without_a_writable_folder_goes_on(tmp_path: Path) -> None:
    """No socket is a warning, not the end."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    async with listening(blocked / "agents", []):
        pass


def test_no_folder_is_no_agent(tmp_path: Path) -> None:
    """Nothing was ever started here."""
    assert list(tell_off(tmp_path / "none")) == []


def test_folder_follows_the_state_rule() -> None:
    """The environment goes first, then root's place, then the user's."""
    assert control_dir({"TAILCAUSE_STATE": "/x"}, 0) == Path("/x/agents")
    assert control_dir({}, 0) == Path("/var/lib/tailcause/agents")
    assert control_dir({"HOME": "/home/a"}, 1000) == Path("/home/a/.local/state/tailcause/agents")
