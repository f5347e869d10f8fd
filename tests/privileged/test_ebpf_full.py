"""More than there is room for: what finds none is counted, and the rest stays right."""

import os
import sys
from collections.abc import Mapping

import pytest

from ebpf.libbpf import Object
from ebpf.probe import Kernel
from ebpf.probes.sched import Sched
from ebpf.session import Session
from tests.support.brief_cgroups import goes_on, identity, run_in, switches_of
from tests.support.kernel_workloads import PING_PONG, Cgroup, Gated, cgroups
from tests.support.probe_session import (
    attached,
    needs_probes,
)
from tests.support.span_calls import Spans

pytestmark = [pytest.mark.privileged, needs_probes]

PRIME = 997
SPANS = 9973
SPANS_OPEN = 20011
CPU = max(os.sched_getaffinity(0))
SMALL = {"cgroup_slots": 3, "free_slots": 3, "matrix": 1}


class SmallKernel(Kernel):
    """A kernel in which some maps have room for very little."""

    def open(self, probe: str) -> Object:
        """Open an object and shrink what this test wants to fill."""
        opened = super().open(probe)
        for name, entries in SMALL.items():
            opened.resize(name, entries)
        return opened


def test_more_cgroups_than_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cgroups without a slot are counted together as "other", and how often is told."""
    made = Session._open_kernel
    monkeypatch.setattr(Session, "_open_kernel", lambda self: SmallKernel(**vars(made(self))))
    with attached(Sched()) as session, cgroups("a", "b", "c", "d", "e") as made_cgroups:
        for cgroup in made_cgroups:
            run_in(cgroup)
        readings = session.read()["sched"]
        assert readings.dropped["cgroups_full"] > 0
        assert switches_of(readings, "other") >= 3 * 97
        named = {r.labels["cgroup"] for r in readings.series} - {"other", "idle"}
        assert len(named) <= SMALL["free_slots"]


def test_more_pairs_than_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of victim and aggressor without room in the matrix are counted; the histograms stay whole."""
    made = Session._open_kernel
    monkeypatch.setattr(Session, "_open_kernel", lambda self: SmallKernel(**vars(made(self))))
    monkeypatch.setitem(SMALL, "cgroup_slots", 1024)
    monkeypatch.setitem(SMALL, "free_slots", 1024)
    with attached(Sched()) as session, cgroups("a", "b", "c") as [a, b, c]:
        # the pairs (900, 932) and (901, 901) share a place in the cache before the matrix
        give_slots(session, {a: 900, b: 932, c: 901})
        for _ in range(3):
            play(a, b)
            play(c, c)
        readings = session.read()["sched"]
    assert readings.dropped["pairs_full"] > 0
    assert switches_of(readings, c.path) >= 3 * 2 * PRIME


def give_slots(session: Session, wanted: Mapping[Cgroup, int]) -> None:
    """Give cgroups slots of our choice before the kernel does."""
    known = session._shared("cgroup_slots")
    assert known is not None
    for cgroup, slot in wanted.items():
        known.update(identity(cgroup), slot.to_bytes(4, sys.byteorder))


def play(one: Cgroup, other: Cgroup) -> None:
    """Play ping-pong on one CPU between processes of two cgroups."""
    with Gated(PING_PONG, str(PRIME)).put(one, CPU) as program:
        program.go().wait_until_done()
        for child in program.children():
            other.add(child)
        program.go().wait_until_done()


def test_more_processes_to_watch_than_room() -> None:
    """Processes beyond what can be watched are counted; the others are watched."""
    with attached(Sched()) as session:
        session.watch(range(10, 1500))
        assert session.unwatched == 1490 - 1024
        session.watch([os.getpid()])
        assert session.unwatched == 0
        assert goes_on(session)


def test_ring_buffer_full(spans: Spans) -> None:
    """Spans that find no room are counted, one by one."""
    for span_id in range(1, SPANS + 1):
        spans.start(span_id)
        spans.end(span_id)
    delivered = len(spans.take())
    lost = spans.dropped()["spans_lost"]
    assert lost > 0
    assert delivered + lost == SPANS


def test_more_open_spans_than_room(spans: Spans) -> None:
    """The oldest open spans give way; their ends are counted as unknown."""
    for span_id in range(1, SPANS_OPEN + 1):
        spans.start(span_id)
    delivered = 0
    for span_id in range(1, SPANS_OPEN + 1):
        spans.end(span_id)
        if span_id % 1000 == 0:
            delivered += len(spans.take())
    delivered += len(spans.take())
    assert spans.dropped()["spans_unknown"] > 0
    assert delivered + spans.dropped()["spans_unknown"] == SPANS_OPEN
