"""The detector's API as a demo sees it, over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from detector.cli.demo.errors import DemoError, NotReachedError
from detector.cli.demo.guard import guarded
from detector.cli.demo.observe import Observed, Observer
from detector.model import SeriesKey, Signal
from tests.support.demo_reports import report
from tests.support.demo_windows import window


@dataclass
class Api:
    """A server with the detector's paths and any answers."""

    answers: dict[str, Any] = field(default_factory=dict)
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        """Answer what is set, or 503 when nothing is."""
        if request.path not in self.answers:
            raise web.HTTPServiceUnavailable
        body = msgspec.json.encode(self.answers[request.path])
        return web.Response(body=body, content_type="application/json")


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """Serve the API on a free port."""
    made = Api({"/api/v1/status": {"spans": 3, "baseline_ready": False, "dropped": {}},
                "/api/v1/incidents": [], "/api/v1/series": []})  # fmt: skip
    app = web.Application()
    app.router.add_get("/{path:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
async def observer(api: Api) -> AsyncIterator[Observer]:
    """Observe the service `chat` there."""
    async with aiohttp.ClientSession() as session:
        watching = Observer(session, api.url, "chat", lambda _: None)
        task = asyncio.create_task(watching.run())
        yield watching
        task.cancel()


async def test_waiting_ends_when_the_detector_says_so(api: Api, observer: Observer) -> None:
    """A state that comes later is seen."""

    async def later() -> None:
        await asyncio.sleep(0.1)
        api.answers["/api/v1/status"] = {"baseline_ready": True}

    change = asyncio.create_task(later())
    await observer.until(lambda seen: seen.status.baseline_ready, 20, lambda _: "missed")
    await change

    assert observer.seen.status.baseline_ready


async def test_a_deadline_says_what_was_missed(observer: Observer) -> None:
    """With what was seen by then."""

    def missed(seen: Observed) -> str:
        return f"{seen.status.spans} spans"

    await observer.until(lambda seen: seen.status.spans > 0, 20, missed)
    with pytest.raises(NotReachedError, match="3 spans"):
        await observer.until(lambda seen: seen.status.baseline_ready, 0.1, missed)


async def test_only_the_incidents_of_the_service_count(api: Api, observer: Observer) -> None:
    """A neighbour's trouble is not ours."""
    line = {"id": "1", "service": "other", "status": "analysing", "onset_unix_s": 5.0}
    api.answers["/api/v1/incidents"] = [line, {**line, "id": "2", "service": "chat"}]

    await observer.until(lambda seen: bool(seen.incidents), 20, lambda _: "missed")

    assert [line.id for line in observer.seen.incidents] == ["2"]


async def test_the_windows_are_those_of_the_whole_service_end_to_end(
    api: Api, observer: Observer
) -> None:
    """Neither one replica's nor another signal's."""
    api.answers["/api/v1/series"] = [
        {"key": SeriesKey("chat", "m", "r0", Signal.E2E), "windows": [window(0)]},
        {"key": SeriesKey("chat", "m", "", Signal.TTFT), "windows": [window(1)]},
        {"key": SeriesKey("chat", "m", "", Signal.E2E), "windows": [window(2)]},
    ]

    await observer.until(lambda seen: bool(seen.windows), 20, lambda _: "missed")

    assert (window(2),) == observer.seen.windows


async def test_an_error_answer_keeps_the_last_state(api: Api, observer: Observer) -> None:
    """A busy detector is not a dead one."""
    await observer.until(lambda seen: seen.status.spans == 3, 20, lambda _: "missed")
    del api.answers["/api/v1/status"]
    await asyncio.sleep(1.2)

    assert observer.seen.status.spans == 3


async def test_a_report_comes_back_as_it_was(api: Api, observer: Observer) -> None:
    """The whole model goes through JSON."""
    api.answers["/api/v1/incidents/i1"] = report()

    assert report() == await observer.report("i1")


async def test_a_report_that_is_no_report_is_an_error_of_ours(api: Api, observer: Observer) -> None:
    """One clear line, not a traceback of the decoder."""
    api.answers["/api/v1/incidents/i1"] = {"id": "i1"}

    with pytest.raises(DemoError, match="/api/v1/incidents/i1 is not understood"):
        await observer.report("i1")


async def test_a_report_that_is_refused_is_an_error_of_ours(observer: Observer) -> None:
    """The reason is told."""
    with pytest.raises(DemoError, match="does not hand out report i2: 503"):
        await observer.report("i2")


def test_the_rate_is_counted_between_two_lines_of_the_load() -> None:
    """Not averaged since the start."""
    seen = Observed()
    seen.take_load({"t": 10.0, "sent": 100, "ok": 90, "rejected": 0, "failed": 0})
    seen.take_load({"t": 12.0, "sent": 150, "ok": 130, "rejected": 5, "failed": 0})

    assert (seen.load.rate, seen.load.ok, seen.load.rejected) == (25.0, 130, 5)


@pytest.mark.parametrize("p99_s", [0.25, None])
def test_what_the_clients_saw_is_kept(p99_s: float | None) -> None:
    """Nothing where nobody was answered, never a zero."""
    seen = Observed()
    seen.take_load({"t": 10.0, "sent": 100, "ok": 90, "rejected": 0, "failed": 0, "p99_s": p99_s})

    assert (seen.load.sent, seen.load.p99_s) == (100, p99_s)


def test_another_line_of_the_load_is_passed_over() -> None:
    """Its last line has no time."""
    seen = Observed()
    seen.take_load({"event": "done", "sent": "many"})

    assert seen.load.sent == 0


async def test_a_guard_gives_the_result_when_nothing_fails() -> None:
    """A watched thing may end well before."""

    async def answer() -> int:
        await asyncio.sleep(0.05)
        return 42

    fine = asyncio.create_task(asyncio.sleep(0))

    assert await guarded(answer(), [fine]) == 42


async def test_a_guard_stops_what_it_guards_when_something_fails() -> None:
    """Nothing goes on behind the error."""
    ended = asyncio.Event()

    async def forever() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def fail() -> None:
        await asyncio.sleep(0.05)
        raise NotReachedError("late")

    with pytest.raises(NotReachedError, match="late"):
        await guarded(forever(), [asyncio.create_task(fail())])

    assert ended.is_set()
