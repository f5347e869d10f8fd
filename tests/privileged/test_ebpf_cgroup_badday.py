"""Cgroups that come and go: names, slots that are used again, and no two series of one name."""

import ctypes
from dataclasses import dataclass

import pytest

from ebpf.probes.sched import Sched
from ebpf.reading import Histogram
from ebpf.session import Session
from ebpf.slotpool import GRACE_S, ROUND_S
from tests.support.brief_cgroups import identity, run_in, switches_of
from tests.support.kernel_workloads import Cgroup, cgroups
from tests.support.probe_session import (
    attached,
    needs_probes,
)

pytestmark = [pytest.mark.privileged, needs_probes]

OLD_RUNS = 5


@dataclass
class Clock:
    """A clock that a test moves."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def test_slot_of_a_cgroup_that_is_gone_is_used_again() -> None:
    """After a while the slot goes to a new cgroup, which begins at nothing; until then the old name stands."""
    clock = Clock()
    session = Session([Sched()], clock=clock)
    session.start()
    try:
        with cgroups("old") as [old]:
            for _ in range(OLD_RUNS):
                run_in(old)
            assert switches_of(session.read()["sched"], old.path) >= OLD_RUNS * 97
            slot = slots(session)[identity(old)]
        clock.now_s += ROUND_S
        assert switches_of(session.read()["sched"], old.path) >= OLD_RUNS * 97
        clock.now_s += GRACE_S
        assert switches_of(session.read()["sched"], old.path) == 0
        for _ in range(2):
            clock.now_s += ROUND_S
            session.read()
        put_first(session, slot)
        with cgroups("new") as [new]:
            run_in(new)
            heir = next(key for key, value in slots(session).items() if value == slot)
            readings = session.read()["sched"]
            if heir == identity(new):  # or that of a cgroup that is not ours
                assert 97 <= switches_of(readings, new.path) < OLD_RUNS * 97
        assert session._pool is not None
        assert session._pool.recycled >= 1
        assert slot in slots(session).values()
    finally:
        session.stop()


def slots(session: Session) -> dict[bytes, bytes]:
    """Return the slot of every cgroup that has one."""
    found = session._shared("cgroup_slots")
    assert found is not None
    return dict(found.items())


def put_first(session: Session, slot: bytes) -> None:
    """Reorder the queue of free slots: this one, which was given back, is the next to be handed out."""
    free = session._shared("free_slots")
    assert session.library is not None
    assert free is not None
    call, taken = session.library.call, ctypes.create_string_buffer(4)
    others = []
    while call.bpf_map_lookup_and_delete_elem(free.fd, None, taken) == 0:
        others.append(taken.raw)
    assert slot in others
    for value in [slot, *(other for other in others if other != slot)]:
        free.update(None, value)


def test_cgroup_made_again_under_its_name() -> None:
    """The new one's series begins afresh; there are never two of the same name."""
    with attached(Sched()) as session, cgroups("parent") as [parent]:
        for _ in range(3):
            again = Cgroup(f"{parent.path}/again")
            run_in(again)
            readings = session.read()["sched"]
            again.remove()
            series = [
                r
                for r in readings.series
                if r.metric == "runqueue.delay" and r.labels["cgroup"] == again.path
            ]
            assert len(series) == 1
            assert isinstance(series[0].value, Histogram)
            assert 97 <= series[0].value.count < 2 * 97 + 60


def test_cgroup_gone_before_it_was_named() -> None:
    """A cgroup that came and went between two readings keeps its numbers, under its id."""
    with attached(Sched()) as session:
        with cgroups("brief") as [brief]:
            run_in(brief)
        names = {r.labels["cgroup"] for r in session.read()["sched"].series}
    assert any(name.startswith("(gone:") for name in names)
    assert brief.path not in names
