"""Event sets: which events they hear of, once each, in order, and how long they wait."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from kernels.fakenvml import scenarios
from kernels.fakenvml.errors import FakeNvmlError
from kernels.fakenvml.scenario import Event, Failure, Gpu, Scenario
from tests.support.nvml_session import NvmlSession

Start = Callable[[Scenario], NvmlSession]
XID = 0x8
REGISTER = """
events = n.nvmlEventSetCreate()
for i in range(n.nvmlDeviceGetCount()):
    n.nvmlDeviceRegisterEvents(device(i), n.nvmlEventTypeXidCriticalError, events)
"""
WAIT = "n.nvmlEventSetWait_v2(events, {})"


@pytest.fixture
def session(start: Start) -> NvmlSession:
    """Start a process over two GPUs whose XIDs it has registered for."""
    started = start(scenarios.healthy(2))
    started.run(REGISTER)
    return started


def heard(session: NvmlSession, count: int) -> list[tuple[int, int]]:
    """Wait for so many events; return GPU and code of each."""
    found: list[Any] = session.run(f"""
result = []
for _ in range({count}):
    data = n.nvmlEventSetWait_v2(events, 60000)
    result.append((n.nvmlDeviceGetIndex(data.device), data.eventData))
""")
    return [(gpu, code) for gpu, code in found]


def test_same_xid_twice(session: NvmlSession) -> None:
    """Two equal XIDs are two events, and then there is none."""
    session.stage(scenarios.healthy(2).with_xid(1, 94).with_xid(1, 94))
    assert heard(session, 2) == [(1, 94), (1, 94)]
    assert session.outcome(WAIT.format(0)) == "NVMLError_Timeout"


def test_rewrite_repeats_nothing(session: NvmlSession) -> None:
    """An event that was delivered is not delivered again because the scenario changes."""
    first = scenarios.healthy(2).with_xid(0, 63)
    session.stage(first)
    assert heard(session, 1) == [(0, 63)]
    session.stage(first.with_xid(0, 79))
    assert heard(session, 1) == [(0, 79)]
    assert session.outcome(WAIT.format(0)) == "NVMLError_Timeout"


def test_in_order_of_time(session: NvmlSession) -> None:
    """Events of several GPUs come in the order in which they happened."""
    now = time.monotonic()
    scenario = scenarios.healthy(2).with_xid(0, 13, now + 0.03).with_xid(1, 31, now + 0.01)
    session.stage(scenario.with_xid(0, 43, now + 0.02))
    assert heard(session, 3) == [(1, 31), (0, 43), (0, 13)]


def test_event_during_the_wait(session: NvmlSession) -> None:
    """A wait that is under way hears of an event that is staged meanwhile."""
    session.run("""
def wait():
    heard.append(n.nvmlEventSetWait_v2(events, 60000).eventData)
heard = []
thread = threading.Thread(target=wait, daemon=True)
thread.start()
""")
    session.stage(scenarios.healthy(2).with_xid(0, 79))
    session.run("thread.join(60)")
    assert session.ask("heard") == [79]


def test_not_what_was_before_the_registration(start: Start) -> None:
    """An event set hears of nothing that happened before it was there."""
    past = time.monotonic() - 1
    started = start(scenarios.healthy(1).with_xid(0, 79, past))
    started.run(REGISTER)
    assert started.outcome(WAIT.format(0)) == "NVMLError_Timeout"


def test_timeout_is_kept(session: NvmlSession) -> None:
    """A wait without an event lasts as long as it was told to, and not much less."""
    took_s = session.run("""
began = time.monotonic()
try:
    n.nvmlEventSetWait_v2(events, 150)
except n.NVMLError_Timeout:
    result = time.monotonic() - began
""")
    assert took_s >= 0.149


def test_every_set_hears_all(session: NvmlSession) -> None:
    """Two event sets do not take each other's events away."""
    session.run("first = events" + REGISTER)
    session.stage(scenarios.healthy(2).with_xid(0, 79))
    assert heard(session, 1) == [(0, 79)]
    session.run("events = first")
    assert heard(session, 1) == [(0, 79)]


def test_types_that_were_not_registered(session: NvmlSession) -> None:
    """A set hears of the types that it asked for."""
    session.stage(scenarios.healthy(2).with_event(0, "ecc_double", 1).with_xid(0, 48))
    assert heard(session, 1) == [(0, 48)]
    assert session.outcome(WAIT.format(0)) == "NVMLError_Timeout"


def test_event_of_an_instance(session: NvmlSession) -> None:
    """An event says which MIG instance it is about, and that it is about none."""
    scenario = scenarios.healthy(2)
    events = (
        Event(1, time.monotonic(), "xid", 31, (2, 0)),
        Event(2, time.monotonic() + 0.001, "xid", 45),
    )
    gpu = scenario.gpus[0]
    session.stage(scenario.with_gpu(0, Gpu(gpu.values, events=events)))
    found = [session.ask(WAIT.format(60_000)) for _ in range(2)]
    ids = [(e["eventData"], e["gpuInstanceId"], e["computeInstanceId"]) for e in found]
    assert ids == [(31, 2, 0), (45, 0xFFFFFFFF, 0xFFFFFFFF)]
    assert [e["eventType"] for e in found] == [XID, XID]


def test_first_layout(session: NvmlSession) -> None:
    """The first version of the wait writes no more than its shorter struct."""
    session.stage(scenarios.healthy(2).with_xid(0, 62))
    found = session.run("""
words = (ctypes.c_ulonglong * 4)(0, 0, 0, 0xABAB)
code = n.nvmlLib.nvmlEventSetWait(events, words, 60000)
result = [code, words[1], words[2], words[3]]
""")
    assert found == [0, XID, 62, 0xABAB]


def test_gpu_lost_during_the_wait(session: NvmlSession) -> None:
    """A wait ends with what the scenario says about it."""
    session.run("""
def wait():
    try:
        n.nvmlEventSetWait_v2(events, 60000)
    except n.NVMLError as error:
        heard.append(error.value)
heard = []
thread = threading.Thread(target=wait, daemon=True)
thread.start()
""")
    session.stage(scenarios.healthy(2).faulty(Failure("nvmlEventSetWait", "GPU_IS_LOST")))
    session.run("thread.join(60)")
    assert session.ask("heard") == [15]


def test_reload_during_the_wait(session: NvmlSession) -> None:
    """When the driver is reloaded, a wait does not go on for ever."""
    session.stage(scenarios.healthy(2).reloaded())
    assert session.outcome(WAIT.format(60_000)) == "NVMLError_Uninitialized"


def test_unsupported_type(session: NvmlSession) -> None:
    """A type that the GPU cannot report is refused."""
    asked = "n.nvmlDeviceRegisterEvents(device(0), n.nvmlEventTypePState, events)"
    assert session.outcome(asked) == "NVMLError_NotSupported"


def test_freed_set(session: NvmlSession) -> None:
    """A set that was freed is invalid, not a crash."""
    session.run("n.nvmlEventSetFree(events)")
    for call in (WAIT.format(0), "n.nvmlEventSetFree(events)"):
        assert session.outcome(call) == "NVMLError_InvalidArgument"


def test_too_many_events() -> None:
    """More events than a set can keep apart are refused when they are made."""
    gpu = scenarios.h100(0)
    last = Gpu(gpu.values, events=(Event(4095, 0.0, "xid", 1),))
    with pytest.raises(FakeNvmlError, match="at most 4095"):
        Scenario((last,)).with_xid(0, 1)
