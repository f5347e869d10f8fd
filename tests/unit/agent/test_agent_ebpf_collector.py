"""Readings of probes become samples of the catalogue, bounded, and what is unknown is counted."""

from collections.abc import Mapping

from agent.collectors.base import CollectorContext, NoData
from agent.collectors.ebpf import MAX_SERIES, EbpfCollector
from agent.collectors.ebpf_names import ATTRIBUTE_OF, METRIC_OF
from agent.probelist import ProbeSettings
from agent.probes import Probes, ProbeStatus
from agent.telemetry.model import Buckets, Sample, SignalState
from agent.telemetry.names import BY_NAME
from ebpf.busiest import Busiest
from ebpf.layout import SLOTS
from ebpf.reading import Histogram, Reading, Readings
from ebpf.session import State


class Standing(Probes):
    """Probes that were started elsewhere and return what the test says."""

    readings: Mapping[str, Readings]
    state = State.ON
    started = True

    def read(self) -> Mapping[str, Readings]:
        """Return them."""
        return self.readings

    def status(self) -> Mapping[str, ProbeStatus]:
        """Return one probe."""
        return {"sched": ProbeStatus(self.state, "" if self.state is State.ON else "why", 5)}


def collector(*series: Reading) -> EbpfCollector:
    """Return a collector of these readings."""
    probes = Standing(ProbeSettings())
    probes.readings = {"sched": Readings(series)}
    return EbpfCollector(CollectorContext(now_unix_ns=lambda: 9, probes=probes))


def histogram(**slots: int) -> Histogram:
    """Return a histogram with these slots, such as `_20=3`."""
    found = [0] * SLOTS
    for slot, count in slots.items():
        found[int(slot.removeprefix("_"))] = count
    return Histogram(tuple(found), 1.5)


def test_histogram_becomes_buckets() -> None:
    """Slot 0 is all that is shorter than 2^-29 s, slot 20 begins at 2^-10 s."""
    [sample] = collector(
        Reading("runqueue.delay", {"cgroup": "/a"}, histogram(_0=7, _20=3))
    ).collect()
    counts = [0] * (SLOTS - 1)
    counts[19] = 3
    assert sample == Sample(
        "tailcause.runqueue.delay", 10, 9, {"tailcause.cgroup.path": "/a"}, 5,
        Buckets(-29, tuple(counts), 7, 1.5),
    )  # fmt: skip


def test_matrix_carries_victim_and_aggressor() -> None:
    """The victim is the cgroup, so that it joins with everything else of the cgroup."""
    [sample] = collector(
        Reading("runqueue.wait_on", {"cgroup": "/a", "aggressor": "/b"}, 2.5)
    ).collect()
    assert (sample.metric, sample.value) == ("tailcause.runqueue.wait_on.time", 2.5)
    assert sample.attributes == {"tailcause.cgroup.path": "/a", "tailcause.aggressor.path": "/b"}


def test_cgroup_that_was_made_again_is_one_series() -> None:
    """Two slots of one path add up: two samples of one series would be refused."""
    samples = collector(
        Reading("runqueue.involuntary_switches", {"cgroup": "/a"}, 2.0),
        Reading("runqueue.involuntary_switches", {"cgroup": "/a"}, 3.0),
        Reading("runqueue.delay", {"cgroup": "/a"}, histogram(_20=1)),
        Reading("runqueue.delay", {"cgroup": "/a"}, histogram(_20=2)),
    ).collect()
    assert sorted((s.metric, s.value) for s in samples) == [
        ("tailcause.runqueue.delay", 3),
        ("tailcause.runqueue.involuntary_switches", 5.0),
    ]


def test_unknown_readings_are_counted() -> None:
    """A probe that is newer than the catalogue loses its series, and the loss shows."""
    known = Reading("runqueue.throttled", {"cgroup": "/a"}, 1.0)
    samples = collector(
        known, Reading("what.ever", {"cgroup": "/a"}, 1.0), Reading("tcp.rtt", {"moon": "1"}, 1.0)
    ).collect()
    lost = {s.attributes["reason"]: s.value for s in samples if s.metric.endswith("pipe.dropped")}
    assert lost == {"unknown_metric": 2}
    assert len(samples) == 2


def test_too_many_pairs_are_bounded_and_counted() -> None:
    """The pairs that waited most are exported, how many were left out is counted."""
    many = [
        Reading("runqueue.wait_on", {"cgroup": f"/{n}", "aggressor": "/b"}, float(n))
        for n in range(MAX_SERIES + 3)
    ]
    samples = collector(*many).collect()
    pairs = [s.value for s in samples if s.metric == "tailcause.runqueue.wait_on.time"]
    [lost] = [s for s in samples if s.metric == "tailcause.pipe.dropped"]
    assert sorted(pairs) == [float(n) for n in range(3, MAX_SERIES + 3)]
    assert (lost.attributes["reason"], lost.value) == ("too_many", 3)


def test_what_a_probe_leaves_out_is_counted() -> None:
    """A probe's own bound shows in the same count."""
    probes = Standing(ProbeSettings())
    told = Reading("runqueue.wait_on", {"cgroup": "/a", "aggressor": "/b"}, 1.0)
    probes.readings = {"sched": Readings((told,), left_out=7)}
    samples = EbpfCollector(CollectorContext(probes=probes)).collect()
    [lost] = [s for s in samples if s.metric == "tailcause.pipe.dropped"]
    assert (lost.attributes["reason"], lost.value) == ("too_many", 7)


def test_no_probe_is_a_state_with_a_reason() -> None:
    """Probes that could not be attached give no data and the first one's reason, never zeros."""
    probes = Standing(ProbeSettings())
    probes.readings, probes.state = {}, State.NO_PERMISSION
    try:
        EbpfCollector(CollectorContext(probes=probes)).collect()
    except NoData as exc:
        told = (exc.state, exc.reason)
    assert told == (SignalState.NO_PERMISSION, "why")


def test_names_are_in_the_catalogue() -> None:
    """Every reading that is listed has a metric whose attributes hold its labels."""
    assert set(METRIC_OF.values()) <= set(BY_NAME)
    used = {key for metric in METRIC_OF.values() for key in BY_NAME[metric].attributes}
    assert set(ATTRIBUTE_OF.values()) <= used


def test_busiest_are_those_that_grow() -> None:
    """A series that grows goes before one that is large and stands still."""
    busiest: Busiest[str] = Busiest(1)
    assert busiest.pick({"old": 100.0}) == {"old"}
    assert busiest.pick({"old": 100.0, "new": 5.0}) == {"new"}


def test_incumbent_stays_when_it_is_nearly_as_busy() -> None:
    """Series do not come and go with every small difference."""
    busiest: Busiest[str] = Busiest(1)
    busiest.pick({"a": 10.0})
    assert busiest.pick({"a": 16.0, "b": 10.0}) == {"a"}
    assert busiest.overflow == 1


def test_attributes_stay_the_same_objects() -> None:
    """What is written from them can be kept; a series that is gone leaves nothing behind."""
    probes = Standing(ProbeSettings())
    told = [Reading("runqueue.throttled", {"cgroup": f"/{n}"}, 1.0) for n in range(2)]
    probes.readings = {"sched": Readings(tuple(told))}
    ebpf = EbpfCollector(CollectorContext(probes=probes))
    first, second = ebpf.collect(), ebpf.collect()
    assert {id(one.attributes) for one in first} == {id(one.attributes) for one in second}
    probes.readings = {"sched": Readings(tuple(told[:1]))}
    ebpf.collect()
    assert len(ebpf._attributes) == 1
