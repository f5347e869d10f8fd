"""Fixtures that the agent's tests share."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agent.host.paths import HostPaths

Until = Callable[[Callable[[], object]], Awaitable[None]]

HOSTS = Path(__file__).parents[2] / "fixtures" / "host"


@pytest.fixture(autouse=True)
def _spool_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what an agent of one test could not send from the next test's agent."""
    monkeypatch.setenv("TAILCAUSE_AGENT_SPOOL_DIR", str(tmp_path / "spool"))


@pytest.fixture
def until() -> Until:
    """Return a wait for a condition that another task makes true, of at most 30 s."""

    async def wait(condition: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110  the condition lives in the code under test
                await asyncio.sleep(0.01)

    return wait


@pytest.fixture
def host() -> Callable[[str], HostPaths]:
    """Return the paths of a fixture host by its layout: `v1`, `v2` or `hybrid`."""

    def paths(layout: str) -> HostPaths:
        return HostPaths(HOSTS / layout / "proc", HOSTS / layout / "cgroup")

    return paths
