"""The collector `servers` tells what every server says, and of each that does not, why."""

import json
import socket
import statistics
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent import cli
from agent.collectors.base import CollectorContext, NoData
from agent.collectors.servers import ServersCollector
from agent.exporters.exposition import render
from agent.otlp.codec import encode_samples
from agent.servers import listening, table
from agent.servers.listening import Listening
from agent.servers.settings import ServerSettings, parse_targets
from agent.servers.workload import WORKLOAD
from agent.telemetry.keys import (
    GEN_AI_MODEL,
    GEN_AI_OPERATION,
    GEN_AI_PROVIDER,
    OUTCOME,
    REASON,
    SERVER_ADDRESS,
    SERVER_PORT,
    SOURCE,
)
from agent.telemetry.model import Sample, SignalState
from tests.support.page_server import Behaviour, recorded, serving
from tests.support.workload_process import serving as workload

UP = "tailcause.server.up"


@pytest.fixture
def made() -> Iterator[list[ServersCollector]]:
    """Return a list whose collectors are closed at the end."""
    collectors: list[ServersCollector] = []
    yield collectors
    for one in collectors:
        one.close()


def build(
    made: list[ServersCollector], *urls: str, deadline_s: float = 20.0, poll_s: float = 0.0
) -> ServersCollector:
    """Return a collector of these pages, that reads them each time."""
    settings = ServerSettings(parse_targets(urls), poll_s=poll_s, deadline_s=deadline_s)
    made.append(ServersCollector(CollectorContext(servers=settings)))
    return made[-1]


def trouble(collector: ServersCollector) -> NoData:
    """Return what is told when not every server answers."""
    with pytest.raises(NoData) as caught:
        collector.collect()
    assert caught.value.remedy
    return caught.value


def by_port(samples: list[Sample] | tuple[Sample, ...], metric: str = UP) -> dict[object, float]:
    """Return a metric's value by the server's port."""
    return {s.attributes[SERVER_PORT]: s.value for s in samples if s.metric == metric}


def port(url: str) -> int:
    """Return the port of a URL."""
    return int(url.split(":")[2].partition("/")[0])


def told(collector: ServersCollector) -> list[Sample]:
    """Return the samples, also those that come with a problem."""
    try:
        return collector.collect()
    except NoData as exc:
        return list(exc.samples)


def until(
    collector: ServersCollector, good: Callable[[list[Sample]], bool], timeout_s: float = 60.0
) -> list[Sample]:
    """Return the first samples that are good; pages are not read at every collection."""
    end_s = time.monotonic() + timeout_s
    while not good(samples := told(collector)):
        assert time.monotonic() < end_s, samples
        time.sleep(0.02)
    return samples


def test_nothing_configured() -> None:
    """Without a server the signal is off, and says how to turn it on."""
    caught = trouble(ServersCollector(CollectorContext()))
    assert caught.state is SignalState.DISABLED
    assert "--servers" in caught.remedy


def test_servers_of_several_kinds(made: list[ServersCollector]) -> None:
    """Each page is recognised by its own names, and its series bear the server's address and kind."""
    pages = {"vllm": "vllm_v1", "sglang": "sglang_0_5", "triton": "triton_vllm", "tgi": "tgi"}
    with ExitStack() as stack:
        urls = {
            kind: stack.enter_context(serving(Behaviour(recorded(page))))
            for kind, page in pages.items()
        }
        samples = build(made, *urls.values()).collect()
    ups = {s.attributes[SERVER_PORT]: s for s in samples if s.metric == UP}
    for kind, url in urls.items():
        up = ups[port(url)]
        assert (up.value, up.attributes[GEN_AI_PROVIDER]) == (1.0, kind)
        assert up.attributes[SERVER_ADDRESS] == "127.0.0.1"
    (first,) = [
        s
        for s in samples
        if s.metric == table.TTFT and s.attributes[SERVER_PORT] == port(urls["sglang"])
    ]
    assert first.attributes[SOURCE] == "scrape"
    assert first.attributes[GEN_AI_OPERATION] == "unknown"
    assert first.attributes[GEN_AI_MODEL] == "acme/chat-8b"
    assert encode_samples(samples, {})


def test_exposition_of_scraped_histograms(made: list[ServersCollector]) -> None:
    """Histograms of servers with different bounds go out under one name, each with its own."""
    with (
        serving(Behaviour(recorded("vllm_v0"))) as one,
        serving(Behaviour(recorded("sglang_0_5"))) as other,
    ):
        text = render(build(made, one, other).collect(), {}).decode()
    families = {f.name: f for f in text_string_to_metric_families(text)}
    rows = families["gen_ai_server_time_to_first_token_seconds"].samples
    bounds = {
        kind: [
            row.labels["le"]
            for row in rows
            if row.name.endswith("_bucket") and row.labels["gen_ai_provider_name"] == kind
        ]
        for kind in ("vllm", "sglang")
    }
    assert len(bounds["vllm"]) == 17
    assert len(bounds["sglang"]) == 13


def test_one_that_is_down(made: list[ServersCollector]) -> None:
    """A server that is not there is down with the reason; the other one's values come all the same."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        away = f"http://127.0.0.1:{taken.getsockname()[1]}/metrics"
    with serving(Behaviour(recorded("vllm_v1"))) as url:
        caught = trouble(build(made, url, away))
    assert caught.state is SignalState.FAILED
    assert str(port(away)) in caught.reason
    assert by_port(caught.samples) == {port(url): 1.0, port(away): 0.0}
    assert table.RUNNING in {sample.metric for sample in caught.samples}


def test_one_that_comes_back(made: list[ServersCollector]) -> None:
    """While a server is away its values are missing, not old, and outcomes are counted; then it is there again."""
    behaviour = Behaviour(recorded("vllm_v0"))
    with serving(behaviour) as url:
        collector = build(made, url)
        assert by_port(collector.collect()) == {port(url): 1.0}
        behaviour.status = 503
        samples = until(collector, lambda found: by_port(found) == {port(url): 0.0})
        assert table.RUNNING not in {sample.metric for sample in samples}
        behaviour.status = 200
        samples = until(collector, lambda found: by_port(found) == {port(url): 1.0})
    assert table.RUNNING in {sample.metric for sample in samples}
    counts = {s.attributes[OUTCOME]: s.value for s in samples if s.metric.endswith(".scrapes")}
    assert counts["ok"] >= 2
    assert counts["http_error"] >= 1


def test_one_that_hangs(made: list[ServersCollector]) -> None:
    """A server that hangs is told so; afterwards nobody waits for it, and the other is read as before."""
    hanging, good = Behaviour("x", holds=True), Behaviour(recorded("vllm_v0"))
    with serving(good) as url, serving(hanging) as other:
        waited_s: list[float] = []
        collector = build(made, url, other, deadline_s=2.0)
        caught = trouble(collector)
        assert caught.state is SignalState.HUNG
        asked = len(good.asked)
        end_s = time.monotonic() + 60
        while len(good.asked) < asked + 5 and time.monotonic() < end_s:
            begun_s = time.monotonic()
            assert by_port(trouble(collector).samples) == {port(url): 1.0, port(other): 0.0}
            waited_s.append(time.monotonic() - begun_s)
        assert len(good.asked) >= asked + 5
        assert statistics.median(waited_s) < 1.5
        hanging.hold.set()


@pytest.mark.parametrize(
    ("behaviour", "outcome"),
    [
        (Behaviour("# nothing here\nnode_load1 0.5\n"), "unknown_server"),
        (Behaviour(""), "unknown_server"),
        (Behaviour("\x00\x01\x02 garbage {{{ \n" * 100), "unknown_server"),
        (Behaviour("{}", headers={"Content-Type": "application/json"}), "not_metrics"),
        (Behaviour(recorded("vllm_v1"), status=301, headers={"Location": "/x"}), "http_error"),
        (Behaviour("x" * (9 << 20)), "too_large"),
    ],
)
def test_pages_of_no_use(made: list[ServersCollector], behaviour: Behaviour, outcome: str) -> None:
    """Whatever else is at the address has a name of its own, and a reason and remedy for people."""
    with serving(behaviour) as url:
        caught = trouble(build(made, url))
    counts = {s.attributes.get(OUTCOME) for s in caught.samples if s.metric.endswith(".scrapes")}
    assert counts == {outcome}
    assert by_port(caught.samples) == {port(url): 0.0}


def test_page_of_another_kind(made: list[ServersCollector]) -> None:
    """A kind that was named must be the page's."""
    with serving(Behaviour(recorded("vllm_v1"))) as url:
        caught = trouble(build(made, f"sglang@{url}"))
    assert "sglang" in caught.reason


def test_server_that_has_not_served_yet(made: list[ServersCollector]) -> None:
    """A page that has the names and no series yet is a server that is up and says nothing."""
    text = "# HELP vllm:num_requests_running Requests.\n# TYPE vllm:num_requests_running gauge\n"
    with serving(Behaviour(text)) as url:
        samples = build(made, url).collect()
    assert {sample.metric for sample in samples} == {UP, "tailcause.server.scrapes"}


def test_other_server_at_the_address(made: list[ServersCollector]) -> None:
    """When another server takes the address, its page is read as its own."""
    behaviour = Behaviour(recorded("vllm_v0"))
    with serving(behaviour) as url:
        collector = build(made, url)
        collector.collect()
        behaviour.page = recorded("sglang_0_5")
        until(collector, lambda found: kinds(found) == {"sglang"})


def kinds(samples: list[Sample]) -> set[object]:
    """Return whose requests are told."""
    return {s.attributes[GEN_AI_PROVIDER] for s in samples if s.metric == table.RUNNING}


def test_losses_are_counted(made: list[ServersCollector]) -> None:
    """What of a page was not taken in is counted by reason."""
    page = recorded("vllm_v0") + "vllm:num_requests_running{a=b} 1\n" * 3
    with serving(Behaviour(page)) as url:
        samples = build(made, url).collect()
    lost = {s.attributes[REASON]: s.value for s in samples if s.metric == "tailcause.pipe.dropped"}
    assert lost == {"malformed_line": 3}


def test_pages_are_read_at_their_pace(made: list[ServersCollector]) -> None:
    """Between two readings the last one's values are told, with the time at which they were read."""
    behaviour = Behaviour(recorded("vllm_v0"))
    with serving(behaviour) as url:
        collector = build(made, url, poll_s=3600.0)
        first = {s.time_unix_ns for s in collector.collect() if s.metric == table.RUNNING}
        again = {s.time_unix_ns for s in collector.collect() if s.metric == table.RUNNING}
    assert first == again
    assert len(behaviour.asked) == 1


def test_own_workload(
    made: list[ServersCollector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real server is found by its listening socket and its process, and tells what it was asked."""
    with workload(tmp_path) as server:
        number = port(server.url)
        monkeypatch.setattr(listening, "_BY_PORT", {number: (WORKLOAD,)})
        settings = ServerSettings(discover=True, poll_s=0.0, deadline_s=20.0)
        made.append(ServersCollector(CollectorContext(servers=settings)))
        until(made[-1], lambda found: by_port(found) == {number: 1.0})
        body = json.dumps({"prompt": "one two three", "max_tokens": 5}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(  # noqa: S310  a test's own server
            f"{server.url}/v1/completions", body, headers
        )
        for _ in range(3):
            with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
                assert response.status == 200
        samples = until(made[-1], lambda found: count(found, table.DURATION) == 3)
    by_metric = {s.metric: s for s in samples if s.attributes.get(GEN_AI_PROVIDER) == "tailcause"}
    assert by_metric[table.DURATION].value == 3
    assert by_metric[table.TTFT].value == 3
    assert by_metric[table.GENERATION_TOKENS].value >= 3
    assert by_metric[table.RUNNING].value == 0
    assert by_metric[table.FINISHED].value == 3
    assert by_metric[table.DURATION].start_unix_ns > 0


def count(samples: list[Sample], metric: str) -> float:
    """Return the sum of a metric's values."""
    return sum(sample.value for sample in samples if sample.metric == metric)


def test_nobody_found(made: list[ServersCollector], tmp_path: Path) -> None:
    """When nobody is found, the ports that were looked at are told."""
    settings = ServerSettings(discover=True)
    context = CollectorContext(servers=settings)
    collector = ServersCollector(context)
    made.append(collector)
    collector._watcher._roster._listening = Listening(context.paths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listening, "_BY_PORT", {})
        caught = trouble(collector)
    assert caught.state is SignalState.NOT_SUPPORTED
    assert "30000" in caught.reason


def test_found_page_that_is_no_server(made: list[ServersCollector], tmp_path: Path) -> None:
    """What was found and is no known server is not reported, and not asked again at once."""
    behaviour = Behaviour("node_load1 0.5\n")
    with serving(behaviour) as url, pytest.MonkeyPatch.context() as patch:
        patch.setattr(listening.Listening, "targets", lambda _: list(parse_targets((url,))))
        settings = ServerSettings(discover=True, poll_s=0.0, deadline_s=20.0)
        made.append(ServersCollector(CollectorContext(servers=settings)))
        for _ in range(3):
            assert not trouble(made[-1]).samples
    assert len(behaviour.asked) == 1


def test_once_and_doctor_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    """The commands for people tell which server does not answer, and why."""
    with serving(Behaviour("node_load1 0.5\n")) as url:
        flags = ["--servers", f"vllm@{url}", "--disable", "ebpf,cgroup,process,kube,gpu"]
        assert cli.main(["once", "--json", *flags]) == 0
        signals = {s["signal"]: s for s in json.loads(capsys.readouterr().out)["signals"]}
        assert "no series of vllm" in signals["servers"]["reason"]
        assert by_port_of_json(signals["servers"]["samples"]) == {port(url): 0.0}
        cli.main(["doctor", "--json", *flags])
        findings = {f["name"]: f for f in json.loads(capsys.readouterr().out)["findings"]}
    assert "no series of vllm" in findings["servers"]["reason"]
    assert findings["servers"]["remedy"]


def by_port_of_json(samples: list[dict[str, object]]) -> dict[object, object]:
    """Return whether servers are up by their port, as JSON has it."""
    ups = [sample for sample in samples if sample["metric"] == UP]
    return {sample["attributes"][SERVER_PORT]: sample["value"] for sample in ups}  # type: ignore[index]
