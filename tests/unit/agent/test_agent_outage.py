"""A back end that is away in every way, under a steady flow of spans: each arrives exactly once, also when the agent dies."""

import asyncio
import contextlib
import itertools
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from tests.support.running_agent import Agent, agent

PHASE_S = float(os.environ.get("TAILCAUSE_OUTAGE_S", "0.5"))
"""How long each outage lasts. 12 is longer than a request may take, and over a minute in all."""
ROOT = Path(__file__).parents[3]
_PER_BATCH = 20
_PAUSE_S = 0.1


@dataclass
class Backend:
    """The process of the back end; it is on the same port each time."""

    folder: Path
    port: int
    process: asyncio.subprocess.Process | None = None

    def mood(self, mood: str) -> None:
        """Tell it what to do from now on."""
        (self.folder / "mood").write_text(mood)

    def taken(self) -> Counter[str]:
        """Return the span ids that it took, with how often."""
        file = self.folder / "spans"
        return Counter(file.read_text().split()) if file.exists() else Counter()

    async def start(self) -> None:
        """Start it and wait until it listens."""
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.moody_backend", str(self.port)),
            *(str(self.folder / "mood"), str(self.folder / "spans")),
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        assert await asyncio.wait_for(self.process.stdout.readline(), 60) == b"ready\n"

    async def kill(self) -> None:
        """End it without a word."""
        if self.process is not None:
            self.process.kill()
            await self.process.wait()


@contextlib.asynccontextmanager
async def backend(folder: Path) -> AsyncIterator[Backend]:
    """Run a back end on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        served = Backend(folder, probe.getsockname()[1])
    served.mood("ok")
    await served.start()
    try:
        yield served
    finally:
        await served.kill()


@dataclass
class Flow:
    """Sends 200 spans a second to an agent; the lock is held until the agent has answered."""

    url: str = ""
    ended: bool = False
    answered: list[str] = field(default_factory=list)
    between: asyncio.Lock = field(default_factory=asyncio.Lock)
    ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def run(self) -> None:
        """Send until `ended`."""
        async with aiohttp.ClientSession() as session:
            while not self.ended:
                async with self.between:
                    await self._send(session)
                await asyncio.sleep(_PAUSE_S)

    async def _send(self, session: aiohttp.ClientSession) -> None:
        ids = [f"{next(self.ids):016x}" for _ in range(_PER_BATCH)]
        spans = [{"traceId": f"{one:0>32}", "spanId": one, "name": "x"} for one in ids]
        tree = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
        async with session.post(f"{self.url}/v1/traces", json=tree) as answer:
            assert (answer.status, await answer.json()) == (200, {})
        self.answered += ids


async def spooled(running: Agent) -> float:
    """Return how many items wait on the agent's disk."""
    async with aiohttp.ClientSession() as session, session.get(running.metrics) as answer:
        text = await answer.text()
    values = re.findall(
        r'^tailcause_spool_items\{[^}]*tailcause_pipe="spans"[^}]*\} (\S+)$', text, re.MULTILINE
    )
    return sum(map(float, values))


async def until_spooled(running: Agent) -> None:
    """Wait until the spans wait on disk, as from then on all that come do."""
    async with asyncio.timeout(60):
        while await spooled(running) == 0:  # noqa: ASYNC110  another process tells it
            await asyncio.sleep(0.05)


async def until_arrived(served: Backend, flow: Flow) -> None:
    """Wait until all that the agent has answered for until now is there."""
    wanted = set(flow.answered)
    async with asyncio.timeout(90):
        while wanted - served.taken().keys():  # noqa: ASYNC110  a file tells it
            await asyncio.sleep(0.1)


async def outages(served: Backend, flow: Flow, running: Agent, phase_s: float) -> None:
    """Let the back end be away in all ways in which it stays alive, then come back."""
    await asyncio.sleep(phase_s)
    for mood in ("503", "429", "garbage", "hang"):
        served.mood(mood)
        await until_spooled(running)
        await asyncio.sleep(phase_s)
    served.mood("ok")
    await until_arrived(served, flow)


async def death(served: Backend, flow: Flow, running: Agent, phase_s: float) -> None:
    """Kill the back end while it takes nothing, and start it again."""
    served.mood("503")
    await until_spooled(running)
    await served.kill()
    await asyncio.sleep(phase_s)
    served.mood("ok")
    await served.start()
    await until_arrived(served, flow)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_every_span_exactly_once(tmp_path: Path) -> None:
    """Failing, throttling, garbling, hanging and dying back ends and the death of the agent lose and repeat nothing."""
    flow = Flow()
    async with backend(tmp_path) as served, asyncio.TaskGroup() as group:
        flags = ("--forward", f"http://127.0.0.1:{served.port}", "--export", "off")
        async with agent(*flags) as first:
            flow.url = first.otlp
            group.create_task(flow.run())
            await outages(served, flow, first, PHASE_S)
            served.mood(
                "mute"
            )  # it takes a batch whose answer the first agent will not live to see
            await until_spooled(first)
            await flow.between.acquire()
            first.process.kill()
            await first.process.wait()
        async with agent(*flags) as second:
            flow.url = second.otlp
            flow.between.release()
            await asyncio.sleep(PHASE_S)
            served.mood("ok")
            await until_arrived(served, flow)
            await death(served, flow, second, PHASE_S)
            async with flow.between:
                flow.ended = True
            await until_arrived(served, flow)
            assert await second.end() == 0
    assert served.taken() == Counter(flow.answered)
    assert len(flow.answered) > 200
