"""The service as a whole: real sockets, real store, real database."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from detector import state as state_folder
from detector.errors import CannotStartError
from detector.incidents.database import FILE, IncidentDatabase
from detector.model import Report, Snapshot
from tests.unit.detector.conftest import RequestMaker, Start, quick

QUIET_S, SLOW_S = 90.0, 30.0


def history(make: RequestMaker, slow: float = 4.0) -> list[Any]:
    """Return the last two minutes: quiet, then slow until now."""
    now = time.time() - 2.0
    onset = now - SLOW_S
    return [
        *make.traffic(onset - QUIET_S, onset),
        *make.traffic(onset, now, slow=slow),
    ]


async def test_a_slow_down_becomes_a_reported_incident(
    start: Start, request_span: RequestMaker
) -> None:
    """Spans sent over OTLP end as one incident with its report in the API."""
    service = await start()
    spans = history(request_span)
    assert await service.send(spans) == 200
    listed: Any = await service.until(
        "/api/v1/incidents",
        lambda found: found and found[0]["verdict"],  # type: ignore[index]
    )
    assert len(listed) == 1
    assert (listed[0]["service"], listed[0]["status"]) == ("chat-api", "reported")
    assert abs(listed[0]["onset_unix_s"] - spans[int(QUIET_S * 20)].end_unix_ns / 1e9) <= 2.5
    report: Any = await service.get(f"/api/v1/incidents/{listed[0]['id']}")
    assert report["verdict"] == "fault"
    assert {key["replica"] for key in report["incident"]["series"]} == {"", "chat-api-0"}
    assert listed[0]["headline"] in await service.text("/")


async def test_quiet_traffic_raises_nothing(start: Start, request_span: RequestMaker) -> None:
    """Two minutes without a change end in a ready baseline and no incident."""
    service = await start()
    await service.send(history(request_span, slow=1.0))
    status: Any = await service.until("/api/v1/status", lambda s: s["windows"] >= 55)  # type: ignore[index]
    assert status["baseline_ready"]
    assert status["incidents_open"] == 0
    assert await service.get("/api/v1/incidents") == []


async def test_a_failing_analysis_leaves_the_service_watching(
    start: Start, request_span: RequestMaker
) -> None:
    """An analysis that raises is shown with its error and counted; the status stays `analysing`."""

    def broken(_: Snapshot) -> Report:
        raise ZeroDivisionError("no requests")

    service = await start(analyse=broken)
    await service.send(history(request_span))
    listed: Any = await service.until(
        "/api/v1/incidents",
        lambda found: found and found[0]["error"],  # type: ignore[index]
    )
    assert listed[0]["status"] == "analysing"
    assert listed[0]["error"] == "ZeroDivisionError: no requests"
    status: Any = await service.get("/api/v1/status")
    assert status["dropped"]["analyses_failed"] == 1


async def test_a_restart_keeps_the_baseline(start: Start, request_span: RequestMaker) -> None:
    """What one service learned, the next one in the same folder knows from the segments."""
    first = await start()
    await first.send(history(request_span, slow=1.0))
    await first.until("/api/v1/status", lambda s: s["baseline_ready"])  # type: ignore[index]
    await start.stop_all()  # type: ignore[attr-defined]
    second = await start()
    status: Any = await second.get("/api/v1/status")
    assert status["baseline_ready"]
    assert status["spans"] == 2400


async def test_spans_sent_twice_count_once(start: Start, request_span: RequestMaker) -> None:
    """A retry after a lost answer changes nothing."""
    service = await start()
    spans = history(request_span, slow=1.0)
    await service.send(spans)
    await service.send(spans)
    status: Any = await service.get("/api/v1/status")
    assert (status["spans"], status["duplicate_spans"]) == (2400, 2400)


async def test_an_incident_waiting_for_analysis_survives_a_restart(
    start: Start, tmp_path: Path, request_span: RequestMaker
) -> None:
    """A service stopped between detection and analysis answers after its next start."""
    first = await start(quick(**{"analysis.delay_windows": 60, "store.max_age_s": 400}))
    await first.send(history(request_span))
    await first.until("/api/v1/incidents", bool)
    await start.stop_all()  # type: ignore[attr-defined]
    second = await start()
    listed: Any = await second.until(
        "/api/v1/incidents",
        lambda found: found and found[0]["verdict"],  # type: ignore[index]
    )
    assert listed[0]["verdict"] == "fault"


async def test_a_taken_port_is_one_clear_error(start: Start, tmp_path: Path) -> None:
    """A second service on the same port says which port and what to do."""
    first = await start()
    port = int(first.api.rsplit(":", 1)[1])
    (tmp_path / state_folder.LOCK_FILE).unlink()
    with pytest.raises(CannotStartError, match=f"cannot listen on 127.0.0.1:{port}"):
        await start(quick(api_port=port))


async def test_a_state_folder_serves_one_service(start: Start) -> None:
    """Two services would overwrite each other's incidents."""
    await start()
    with pytest.raises(CannotStartError, match="another tailcause service"):
        await start()


async def test_the_record_names_the_ports_and_goes_away(start: Start, tmp_path: Path) -> None:
    """STATE/service.json is there while the service runs."""
    service = await start()
    record = state_folder.read_record(tmp_path)
    assert record is not None
    assert service.api.endswith(f":{record.api_port}")
    await start.stop_all()  # type: ignore[attr-defined]
    assert state_folder.read_record(tmp_path) is None


async def test_unknown_incidents_are_404_in_json(start: Start) -> None:
    """A wrong id is an answer, not a stack trace."""
    service = await start()
    async with service.http.get(f"{service.api}/api/v1/incidents/nope") as answer:
        assert answer.status == 404
        assert "no incident 'nope'" in (await answer.json())["error"]


async def test_logs_are_answered_as_not_stored(start: Start) -> None:
    """Logs are a partial success with a reason, so that senders do not retry."""
    service = await start()
    body = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}'
    headers = {"Content-Type": "application/json"}
    async with service.http.post(f"{service.otlp}/v1/logs", data=body, headers=headers) as answer:
        partial = (await answer.json())["partialSuccess"]
    assert partial["errorMessage"] == "logs are not stored"


async def test_a_batch_that_comes_twice_is_taken_once(start: Start) -> None:
    """An agent that did not hear the answer sends the same batch id, and gets the same answer."""
    service = await start()
    now = time.time_ns()
    point = f'{{"name":"m","gauge":{{"dataPoints":[{{"timeUnixNano":"{now}","asDouble":1}}]}}}}'
    body = f'{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{point}]}}]}}]}}'
    for batch_id in ("a" * 32, "a" * 32, "b" * 32):
        headers = {"Content-Type": "application/json", "X-Tailcause-Batch": batch_id}
        url = f"{service.otlp}/v1/metrics"
        async with service.http.post(url, data=body, headers=headers) as answer:
            assert (answer.status, await answer.json()) == (200, {})
    await service.until("/api/v1/status", lambda status: status["points"] == 2)  # type: ignore[index]


async def test_a_hostile_service_name_is_harmless_on_the_page(start: Start) -> None:
    """Markup in a resource attribute is shown, not run."""
    service = await start()
    evil = RequestMaker(service="<script>alert(1)</script>")
    await service.send(history(evil, slow=1.0))
    await service.until("/api/v1/status", lambda s: s["windows"] > 10)  # type: ignore[index]
    page = await service.text("/")
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


async def test_incidents_are_on_disk_while_the_service_runs(
    start: Start, tmp_path: Path, request_span: RequestMaker
) -> None:
    """The database can be read from outside at any time."""
    service = await start()
    await service.send(history(request_span))
    await service.until("/api/v1/incidents", bool)
    database = IncidentDatabase(tmp_path / FILE, read_only=True)
    listed = await asyncio.to_thread(database.list)
    database.close()
    assert [incident.service for incident in listed] == ["chat-api"]
