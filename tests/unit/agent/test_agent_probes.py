"""What the agent does with a session of probes: shed with their dependants, restored, and said so when that fails."""

from collections.abc import Mapping
from typing import cast

import pytest

from agent.probelist import ProbeSettings
from agent.probes import Probes, _Run
from ebpf.errors import NotSupportedError
from ebpf.probe import Kernel
from ebpf.reading import Readings
from ebpf.session import Session, State


class Fake:
    """A probe that attaches unless it is told not to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.attempts = 0
        self.refusal: Exception | None = None

    def attach(self, kernel: Kernel) -> None:
        """Count, and refuse if so told."""
        self.attempts += 1
        if self.refusal is not None:
            raise self.refusal

    def read(self) -> Readings:
        """Return nothing."""
        return Readings()

    def programs(self) -> Mapping[str, int]:
        """Return nothing."""
        return {}

    def detach(self) -> None:
        """Do nothing."""


class Kit:
    """Probes over a real session of fakes, all of them on."""

    def __init__(self, *names: str) -> None:
        self.fakes = {name: Fake(name) for name in names}
        session = Session(list(self.fakes.values()))
        session._kernel = cast("Kernel", type("NoKernel", (), {"shared": {}})())
        for name in names:
            session.attach(name)
        self.probes = Probes(ProbeSettings())
        self.probes._session = session
        self.probes._runs = {name: _Run() for name in names}

    def states(self) -> dict[str, State]:
        """Return the state of each probe."""
        return {name: status.state for name, status in self.probes.status().items()}


@pytest.fixture
def kit() -> Kit:
    """Make three probes, two of which need each other."""
    return Kit("sched", "waits", "blkio")


def test_those_that_need_a_shed_probe_go_and_come_with_it(kit: Kit) -> None:
    """Without the scheduler probe the waits would stand still."""
    kit.probes.shed("sched", "it took too much")
    gone = kit.states()
    assert kit.probes.status()["waits"].reason == "it needs sched: it took too much"
    assert kit.probes.restore("sched", 10)
    assert gone == {"sched": State.SHED, "waits": State.SHED, "blkio": State.ON}
    assert set(kit.states().values()) == {State.ON}


def test_one_that_had_to_go_by_itself_stays_away(kit: Kit) -> None:
    """The probe that it needs comes back without it."""
    kit.probes.shed("waits", "it took too much")
    kit.probes.shed("sched", "it took too much as well")
    assert kit.probes.restore("sched", 10)
    assert kit.states() == {"sched": State.ON, "waits": State.SHED, "blkio": State.ON}
    assert kit.probes.restore("waits", 10)
    assert kit.states()["waits"] is State.ON


@pytest.mark.parametrize(
    ("refusal", "state"),
    [(NotSupportedError("no such hook"), State.NOT_SUPPORTED), (OSError("no memory"), State.SHED)],
)
def test_restore_that_fails_says_when_it_is_tried_again(
    kit: Kit, refusal: Exception, state: State
) -> None:
    """The state has the reason of the last attempt and the delay of the next; one attempt attaches once."""
    kit.probes.shed("blkio", "it took too much")
    kit.fakes["blkio"].refusal = refusal
    assert not kit.probes.restore("blkio", 20)
    assert not kit.probes.restore("blkio", 40)
    status = kit.probes.status()["blkio"]
    assert (status.state, status.reason) == (state, f"{refusal}; it is tried again in 40 s")
    assert kit.fakes["blkio"].attempts == 3
    kit.fakes["blkio"].refusal = None
    assert kit.probes.restore("blkio", 80)
    assert kit.states()["blkio"] is State.ON


def test_a_dependant_that_fails_is_tried_again_alone(kit: Kit) -> None:
    """The probe that came back is not attached a second time."""
    kit.probes.shed("sched", "it took too much")
    kit.fakes["waits"].refusal = NotSupportedError("not now")
    assert not kit.probes.restore("sched", 10)
    assert kit.states()["sched"] is State.ON
    kit.fakes["waits"].refusal = None
    assert kit.probes.restore("sched", 20)
    assert kit.fakes["sched"].attempts == 2


def test_nothing_comes_back_after_off(kit: Kit) -> None:
    """`off` is final."""
    kit.probes.shed("blkio", "it took too much")
    kit.probes._off_reason = "switched off"
    assert not kit.probes.restore("blkio", 10)
    assert kit.fakes["blkio"].attempts == 1
