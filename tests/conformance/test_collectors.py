"""Every registered collector keeps the same promises, on every host layout and on this host."""

import math
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from agent.collectors.base import CollectorContext, NoData
from agent.collectors.registry import COLLECTORS, Entry
from agent.collectors.watch import Watch
from agent.host.paths import HostPaths
from agent.otlp.codec import encode_samples
from agent.telemetry.metric import Kind
from agent.telemetry.model import Sample, SignalState
from agent.telemetry.names import BY_NAME, METRICS

HOSTS = Path(__file__).parents[1] / "fixtures" / "host"
PACKAGE = Path(__file__).parents[2] / "agent"
LAYOUTS = ("hybrid", "v1", "v2", "live", "empty")

every_collector = pytest.mark.parametrize("entry", COLLECTORS, ids=[e.name for e in COLLECTORS])
every_layout = pytest.mark.parametrize("layout", LAYOUTS)


def context(layout: str, tmp_path: Path) -> CollectorContext:
    """Return the context of a fixture host, of this host, or of one that has nothing."""
    if layout == "live":
        return CollectorContext()
    root = tmp_path if layout == "empty" else HOSTS / layout
    return CollectorContext(HostPaths(root / "proc", root / "cgroup"))


def outcome(entry: Entry, layout: str, tmp_path: Path, times: int = 1) -> list[Sample]:
    """Return what the last of some collections comes back with, empty for no data."""
    collector = entry.build(context(layout, tmp_path))
    samples: list[Sample] = []
    for _ in range(times):
        try:
            samples = collector.collect()
        except NoData as exc:
            samples = list(exc.samples)
    return samples


def series(samples: Iterable[Sample]) -> list[tuple[object, ...]]:
    """Return the identity of each sample."""
    return [(s.metric, *sorted((k, str(v)) for k, v in s.attributes.items())) for s in samples]


@every_collector
@every_layout
def test_samples_fit_the_catalogue(entry: Entry, layout: str, tmp_path: Path) -> None:
    """Names are the collector's own, attributes those of the catalogue, values finite numbers."""
    for sample in outcome(entry, layout, tmp_path):
        assert sample.metric in entry.metrics
        assert set(sample.attributes) <= set(BY_NAME[sample.metric].attributes)
        assert math.isfinite(sample.value)
        assert sample.value >= 0


@every_collector
@every_layout
def test_series_are_distinct(entry: Entry, layout: str, tmp_path: Path) -> None:
    """No two samples of a collection are the same series."""
    found = series(outcome(entry, layout, tmp_path))
    assert len(found) == len(set(found))


@every_collector
@every_layout
def test_samples_encode(entry: Entry, layout: str, tmp_path: Path) -> None:
    """Whatever a collector returns can be exported."""
    assert encode_samples(outcome(entry, layout, tmp_path), {"host.name": "x"})


@every_collector
def test_counters_never_fall(entry: Entry) -> None:
    """On this host a counter's later value is no smaller than the earlier one.

    Idle and iowait are estimates that the kernel may take back (proc_stat(5)).
    """
    collector = entry.build(CollectorContext())
    try:
        first, second = collector.collect(), collector.collect()
    except NoData:
        return
    before = dict(zip(series(first), first, strict=True))
    for key, sample in zip(series(second), second, strict=True):
        estimated = sample.attributes.get("cpu.mode") in {"idle", "iowait"}
        if BY_NAME[sample.metric].kind is Kind.COUNTER and key in before and not estimated:
            assert before[key].value <= sample.value


@every_collector
def test_times_are_now(entry: Entry) -> None:
    """A sample is stamped when it was read, and its start lies before."""
    begun = time.time_ns()
    try:
        samples = entry.build(CollectorContext()).collect()
    except NoData:
        return
    for sample in samples:
        assert begun <= sample.time_unix_ns <= time.time_ns()
        assert sample.start_unix_ns <= sample.time_unix_ns


@every_collector
def test_absence_is_told(entry: Entry, tmp_path: Path) -> None:
    """On a host that has nothing there are no samples, and the state says why; never a 0."""
    collector = entry.build(context("empty", tmp_path))
    with pytest.raises(NoData) as caught:
        collector.collect()
    assert caught.value.reason
    assert caught.value.remedy
    assert caught.value.state is not SignalState.OK


@every_collector
@every_layout
async def test_watched_state_is_told(entry: Entry, layout: str, tmp_path: Path) -> None:
    """Under the watch every outcome is one of the states, with a duration; nothing escapes."""
    watch = Watch(entry.name, entry.build(context(layout, tmp_path)), deadline_s=60.0)
    samples = await watch.collect()
    own = {sample.metric: sample for sample in watch.own_samples()}
    state = SignalState(str(own["tailcause.signal.state"].attributes["tailcause.signal.state"]))
    assert bool(samples) == (state is SignalState.OK)
    assert own["tailcause.signal.collect.duration"].value >= 0
    await watch.close()


@every_collector
def test_repeated_collection_is_stable(entry: Entry, tmp_path: Path) -> None:
    """On a host that stands still, the tenth collection has the series of the first."""
    first = outcome(entry, "hybrid", tmp_path)
    tenth = outcome(entry, "hybrid", tmp_path, times=10)
    assert series(tenth) == series(first)


@every_collector
def test_collector_is_documented(entry: Entry) -> None:
    """The package's README names every collector."""
    assert f"`{entry.name}`" in (PACKAGE / "README.md").read_text()


def test_names_are_unique() -> None:
    """A name stands for one signal."""
    names = [entry.name for entry in COLLECTORS]
    assert len(names) == len(set(names))


def test_every_metric_of_a_collector_is_in_the_catalogue() -> None:
    """Collectors emit nothing that the catalogue lacks."""
    claimed = {metric for entry in COLLECTORS for metric in entry.metrics}
    assert claimed <= set(BY_NAME)


def test_the_catalogue_has_no_orphan() -> None:
    """A metric that no collector emits is named by some other part of the agent."""
    claimed = {metric for entry in COLLECTORS for metric in entry.metrics}
    code = [path for path in PACKAGE.rglob("*.py") if "catalogue" not in path.parts]
    said = "\n".join(path.read_text() for path in code)
    assert {m.name for m in METRICS if m.name not in claimed and f'"{m.name}"' not in said} == set()
