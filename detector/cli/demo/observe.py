"""What can be seen from outside while a demo runs: the detector's API and the load's own counts."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import aiohttp
import msgspec

from detector.cli.demo.errors import DemoError, NotReachedError
from detector.cli.demo.processes import Event
from detector.model import Report, SeriesKey, Signal, WindowVerdict

POLL_S = 0.5
_ANSWER_S = 5.0
_T = TypeVar("_T")


class Status(msgspec.Struct, frozen=True):
    """The part of `/api/v1/status` that a demo needs."""

    spans: int = 0
    points: int = 0
    windows: int = 0
    baseline_ready: bool = False
    baseline_progress: float = 0.0
    dropped: dict[str, int] = {}


class IncidentLine(msgspec.Struct, frozen=True):
    """One entry of `/api/v1/incidents`; `error` tells why an analysis failed."""

    id: str
    service: str
    status: str
    onset_unix_s: float
    verdict: str | None = None
    headline: str | None = None
    error: str | None = None


class LoadProgress(msgspec.Struct, frozen=True):
    """The load generator's latest line; counts are since its start, the P99 is that of the last ten seconds."""

    t: float = 0.0
    sent: int = 0
    ok: int = 0
    rejected: int = 0
    failed: int = 0
    rate: float = 0.0
    p99_s: float | None = None
    """As the clients see it; None where nobody was answered."""


class _Series(msgspec.Struct, frozen=True):
    key: SeriesKey
    windows: tuple[WindowVerdict, ...]


@dataclass
class Observed:
    """The latest of everything."""

    status: Status = field(default_factory=Status)
    windows: tuple[WindowVerdict, ...] = ()
    incidents: tuple[IncidentLine, ...] = ()
    load: LoadProgress = field(default_factory=LoadProgress)

    def take_load(self, event: Event) -> None:
        """Take in a progress line of the load generator."""
        with contextlib.suppress(msgspec.ValidationError):
            now = msgspec.convert(event, LoadProgress)
            past_s = now.t - self.load.t
            if past_s > 0:
                rate = (now.sent - self.load.sent) / past_s
                self.load = msgspec.structs.replace(now, rate=rate)


@dataclass
class Observer:
    """Polls the detector for one service and wakes whoever waits for a state of things."""

    session: aiohttp.ClientSession
    api_url: str
    service: str
    on_change: Callable[[Observed], None]
    seen: Observed = field(default_factory=Observed)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self._poll()
            async with self._changed:
                self._changed.notify_all()
            self.on_change(self.seen)
            await asyncio.sleep(POLL_S)

    async def until(
        self,
        reached: Callable[[Observed], bool],
        timeout_s: float,
        missed: Callable[[Observed], str],
    ) -> None:
        """Wait for a state; `missed` says what was not reached when the time is up."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: reached(self.seen))
        except TimeoutError as exc:
            raise NotReachedError(missed(self.seen)) from exc

    async def report(self, incident: str) -> Report:
        """Fetch the report of an incident."""
        try:
            return await self._get(f"/api/v1/incidents/{incident}", Report)
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise DemoError(f"the detector does not hand out report {incident}: {exc}") from exc

    async def _poll(self) -> None:
        """Ask for everything; a detector too busy to answer keeps the last answer."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            seen = self.seen
            seen.status = await self._get("/api/v1/status", Status)
            lines = await self._get("/api/v1/incidents", tuple[IncidentLine, ...])
            seen.incidents = tuple(line for line in lines if line.service == self.service)
            series = await self._get("/api/v1/series", tuple[_Series, ...])
            seen.windows = self._end_to_end(series)

    def _end_to_end(self, series: tuple[_Series, ...]) -> tuple[WindowVerdict, ...]:
        for one in series:
            key = one.key
            if (key.service, key.replica, key.signal) == (self.service, "", Signal.E2E):
                return one.windows
        return ()

    async def _get(self, path: str, kind: type[_T]) -> _T:
        try:
            return msgspec.json.decode(await self._body(path), type=kind)
        except msgspec.DecodeError as exc:
            raise DemoError(f"the detector's answer to {path} is not understood: {exc}") from exc

    async def _body(self, path: str) -> bytes:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        async with self.session.get(f"{self.api_url}{path}", timeout=timeout) as response:
            response.raise_for_status()
            return await response.read()
