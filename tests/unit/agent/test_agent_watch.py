"""The watch tells data, no data, failure and a hang apart, and never waits past its deadline."""

import logging
import threading
from collections.abc import Callable

import pytest

from agent.collectors.base import NoData
from agent.collectors.watch import Watch
from agent.telemetry.model import Sample, SignalState

Outcome = Callable[[], list[Sample]]
SAMPLE = Sample("system.memory.limit", 1.0, 1)


class Scripted:
    """A collector whose next outcome the test sets."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def collect(self) -> list[Sample]:
        """Do what the test says."""
        return self.outcome()


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def raising(exc: Exception) -> Outcome:
    """Return an outcome that raises."""

    def outcome() -> list[Sample]:
        raise exc

    return outcome


def states(watch: Watch) -> dict[str, list[float]]:
    """Return the watch's own samples by metric."""
    found: dict[str, list[float]] = {}
    for sample in watch.own_samples():
        found.setdefault(sample.metric, []).append(sample.value)
    return found


async def test_data_is_ok_with_an_age() -> None:
    """After a value the signal is ok, and its age grows by the clock."""
    clock = Clock()
    watch = Watch("x", Scripted(lambda: [SAMPLE]), 30.0, clock)
    assert await watch.collect() == [SAMPLE]
    clock.now_s += 7
    assert watch.status.state is SignalState.OK
    assert states(watch)["tailcause.signal.age"] == [7.0]
    assert states(watch)["tailcause.signal.failures"] == [0]


async def test_no_data_is_a_state_not_a_failure() -> None:
    """What the machine does not have is told with its reason, and is no failure."""
    outcome = raising(NoData("PSI is off", remedy="boot with psi=1"))
    watch = Watch("psi", Scripted(outcome), 30.0)
    assert await watch.collect() == []
    status = watch.status
    assert (status.state, status.reason) == (SignalState.NOT_SUPPORTED, "PSI is off")
    assert (status.remedy, status.failures) == ("boot with psi=1", 0)
    assert "tailcause.signal.age" not in states(watch)


async def test_no_data_may_carry_what_there_is() -> None:
    """The samples of the GPUs that are left come through while one is lost."""
    outcome = raising(NoData("GPU 1 is lost", SignalState.GPU_LOST, samples=[SAMPLE]))
    watch = Watch("gpu", Scripted(outcome), 30.0)
    assert await watch.collect() == [SAMPLE]
    assert watch.status.state is SignalState.GPU_LOST


async def test_exception_is_a_counted_failure(caplog: pytest.LogCaptureFixture) -> None:
    """A bug or a broken file is counted, logged once, and does not get out."""
    watch = Watch("x", Scripted(raising(ValueError("bad file"))), 30.0)
    with caplog.at_level(logging.WARNING):
        assert await watch.collect() == []
        assert await watch.collect() == []
    assert (watch.status.state, watch.status.failures) == (SignalState.FAILED, 2)
    assert watch.status.reason == "ValueError: bad file"
    assert len(caplog.records) == 1


async def test_permission_error_is_no_permission() -> None:
    """A refused file is told apart from a broken one."""
    watch = Watch("x", Scripted(raising(PermissionError(13, "denied"))), 30.0)
    await watch.collect()
    assert watch.status.state is SignalState.NO_PERMISSION


async def test_recovery_turns_ok_again() -> None:
    """A signal that works again is ok again and keeps its count of failures."""
    scripted = Scripted(raising(ValueError("once")))
    watch = Watch("x", scripted, 30.0)
    await watch.collect()
    scripted.outcome = lambda: [SAMPLE]
    assert await watch.collect() == [SAMPLE]
    assert (watch.status.state, watch.status.failures) == (SignalState.OK, 1)


async def test_hang_is_hung_and_others_go_on() -> None:
    """A call that does not come back is given up at the deadline, and not called twice at once."""
    gate = threading.Event()
    calls: list[int] = []

    def hang() -> list[Sample]:
        calls.append(1)
        gate.wait(60)
        return [SAMPLE]

    hung = Watch("gpu", Scripted(hang), 0.05)
    other = Watch("cpu", Scripted(lambda: [SAMPLE]), 30.0)
    assert await hung.collect() == []
    assert await hung.collect() == []
    assert await other.collect() == [SAMPLE]
    assert (hung.status.state, hung.status.failures, len(calls)) == (SignalState.HUNG, 2, 1)
    gate.set()


async def test_hung_signal_comes_back() -> None:
    """Once the hanging call returns, the signal is collected again."""
    gate = threading.Event()
    returned = threading.Event()

    def hang() -> list[Sample]:
        gate.wait(60)
        returned.set()
        return [SAMPLE]

    watch = Watch("gpu", Scripted(hang), 0.05)
    assert await watch.collect() == []
    gate.set()
    assert returned.wait(30)
    watch.deadline_s = 30.0
    assert watch._running is not None
    watch._running.result(30)
    assert await watch.collect() == [SAMPLE]
    assert watch.status.state is SignalState.OK


def test_no_state_before_the_first_answer() -> None:
    """A signal that was not asked yet claims no state."""
    assert Watch("x", Scripted(list), 1.0).own_samples() == []
