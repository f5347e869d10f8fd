"""Faults inside a real server, of its GPUs, and its hang: what the kernel and a clock say."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.fakenvml.scenarios import healthy
from tests.support.live_workload import (
    Workload,
    eventually,
    fault,
    live,
    needs_cgroups,
    stop_well,
    workload,
)
from tests.support.workload_calls import (
    answers_within,
    complete,
    cpu_s,
    resident_bytes,
    state_of,
)

pytestmark = [pytest.mark.privileged, needs_cgroups]

MODEL = ("--set", "sql_rows=200")
"""The usual model, whose steps take milliseconds: what a slow runtime costs is then most of a request."""


@pytest.fixture(scope="module")
def running() -> Iterator[Workload]:
    """Share one workload that lets faults in; nobody asks it anything but the tests."""
    with workload("--hook", *MODEL) as up:
        yield up


def server(running: Workload) -> int:
    """Return the server's pid."""
    pid = running.told()["server_pid"]
    assert isinstance(pid, int)
    return pid


def test_a_hung_server_is_stopped_and_goes_on(running: Workload) -> None:
    """The kernel says stopped; a request in flight is answered in the end."""
    with live(fault(running, "hang")) as injected:
        assert state_of(server(running)) == "T"
        assert not answers_within(running.url, 0.5)
        stop_well(injected)

    assert state_of(server(running)) != "T"
    assert answers_within(running.url, 30)


def test_kill_9_of_the_injector_lets_the_server_go_on(running: Workload) -> None:
    """The reaper sends the signal."""
    with live(fault(running, "hang")) as injected:
        injected.stop(signal.SIGKILL)

        assert eventually(lambda: state_of(server(running)) != "T")


def test_a_held_lock_holds_requests_up(running: Workload) -> None:
    """Some request takes as long as the lock is held, which in quiet times none does."""
    quiet_s = min(complete(running.url) for _ in range(5))

    with live(fault(running, "lock-contention", "--intensity", "6")) as injected:
        hold_s = injected.first["parameters"]["hold_s"]
        assert quiet_s < hold_s / 2
        assert eventually(lambda: complete(running.url) > 0.8 * hold_s)
        stop_well(injected)

    assert min(complete(running.url) for _ in range(5)) < hold_s / 2


def test_the_collector_has_a_heap_to_go_over(running: Workload) -> None:
    """An idle server holds more memory and burns CPU, until the fault ends."""
    pid = server(running)
    before = resident_bytes(pid)

    with live(fault(running, "gc-pause", "--intensity", "3")) as injected:
        objects = injected.first["parameters"]["objects"]
        assert resident_bytes(pid) - before > 40 * objects
        used = cpu_s(pid)
        assert eventually(lambda: cpu_s(pid) - used > 0.3)
        stop_well(injected)

    used = cpu_s(pid)
    time.sleep(1.0)
    assert cpu_s(pid) - used < 0.3


def test_kill_9_of_the_injector_ends_what_the_hook_does(running: Workload) -> None:
    """The connection ends with the process, and the disturbance with the connection."""
    with live(fault(running, "lock-contention", "--intensity", "6")) as injected:
        injected.stop(signal.SIGKILL)

        log = running.up.log
        assert eventually(lambda: '"event": "undisturbed", "request": "HoldLock' in log.read_text())


def test_the_hook_is_private(running: Workload) -> None:
    """Its socket and the folder that it is in are for their owner alone."""
    (socket,) = running.state.glob("*.hook")

    assert socket.stat().st_mode & 0o077 == 0
    assert running.state.stat().st_mode & 0o077 == 0


@pytest.fixture
def gpus(tmp_path: Path) -> Path:
    """Write a scenario of healthy GPUs."""
    file = tmp_path / "gpus"
    healthy().write(file)
    return file


def values(file: Path, index: int) -> dict[str, str]:
    """Read the lines of one GPU, by no reader of ours."""
    section = file.read_text().split("\ngpu\n")[1 + index]
    return dict(line.strip().split(" ", 1) for line in section.splitlines() if " " in line.strip())


def test_a_hot_gpu_is_slower_by_nvml_and_by_the_clock(running: Workload, gpus: Path) -> None:
    """Clocks fall, time in violation grows, and the best of some requests takes longer than before and after."""
    usual_s = [complete(running.url, tokens=24) for _ in range(8)]
    words = ("--gpus", str(gpus), "--intensity", "6")

    with live(fault(running, "gpu-throttle", *words)) as injected:
        index = injected.first["parameters"]["gpu"]
        hot = values(gpus, index)
        assert int(hot["clock.sm"]) == round(1980 / 2.2)
        assert "/s" in hot["violation.thermal"]
        slow_s = [complete(running.url, tokens=24) for _ in range(8)]
        stop_well(injected)
    usual_s += [complete(running.url, tokens=24) for _ in range(8)]
    assert min(slow_s) > 1.4 * min(usual_s)

    healed = values(gpus, index)
    assert healed["clock.sm"] == "1980"
    assert int(healed["violation.thermal"]) > 0, "a counter does not fall back"


def test_a_lost_gpu_answers_nobody_until_the_fault_is_over(running: Workload, gpus: Path) -> None:
    """NVML says lost and no step ends; kill -9 of the injector puts both back, the XID stays told."""
    with live(fault(running, "gpu-lost", "--gpus", str(gpus))) as injected:
        index = injected.first["parameters"]["gpu"]
        assert values(gpus, index)["fail"] == "* GPU_IS_LOST"
        assert not answers_within(running.url, 1.0)

        injected.stop(signal.SIGKILL)

        assert eventually(lambda: "fail" not in values(gpus, index))
        assert answers_within(running.url, 30)

    assert values(gpus, index)["event"].endswith("xid 79")


def test_memory_errors_of_a_gpu_are_counted_for_good(running: Workload, gpus: Path) -> None:
    """Their counters and XIDs outlive the fault, the slow-down does not."""
    with live(fault(running, "gpu-xid", "--gpus", str(gpus))) as injected:
        index = injected.first["parameters"]["gpu"]
        stop_well(injected)

    text = gpus.read_text()
    assert values(gpus, index)["ecc.volatile.uncorrected"] == "1"
    assert ("xid 94" in text, "xid 63" in text) == (True, True)
