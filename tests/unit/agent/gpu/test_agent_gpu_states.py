"""GPUs on their bad days: lost, hung, refused, reloaded; and what the agent holds of the driver meanwhile."""

import ctypes
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent.collectors.base import CollectorContext, NoData
from agent.collectors.gpu import GpuCollector
from agent.collectors.watch import Watch
from agent.errors import AgentError
from agent.gpu.library import SONAME, candidates
from agent.gpu.settings import OFF, GpuSettings
from agent.telemetry.model import SignalState
from kernels.fakenvml import h100, scenarios
from kernels.fakenvml.scenario import EVERY_FUNCTION, Failure, Hang
from tests.unit.agent.gpu.conftest import PATIENCE_S, Stage, collect, until

GPUS = [h100.gpu_uuid(index) for index in range(8)]


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def test_lost_gpu_leaves_the_others(stage: Stage) -> None:
    """One GPU off the bus: it has a state and failed, seven have their values, and the signal says which."""
    stage.play(scenarios.healthy())
    gpus = stage.collector()
    collect(gpus)
    stage.play(scenarios.lost(3))
    found = collect(gpus)
    assert found.state is SignalState.GPU_LOST
    assert found.reason.startswith("GPU 3 is lost")
    assert found.states() == {uuid: "gpu_lost" if n == 3 else "ok" for n, uuid in enumerate(GPUS)}
    assert found.of(GPUS[3]) == {
        ("tailcause.gpu.state", "gpu_lost"): 1,
        ("hw.status", "ok"): 0,
        ("hw.status", "degraded"): 0,
        ("hw.status", "failed"): 1,
        ("hw.status", "predicted_failure"): 0,
    }
    assert all(("hw.power",) in found.of(uuid) for n, uuid in enumerate(GPUS) if n != 3)


def test_lost_gpu_comes_back(stage: Stage) -> None:
    """Once it answers again it has its values again."""
    stage.play(scenarios.lost(0))
    gpus = stage.collector()
    assert collect(gpus).states()["nvidia0"] == "gpu_lost"
    stage.play(scenarios.healthy())
    assert collect(gpus).states()[GPUS[0]] == "ok"


def test_no_gpu_left_lets_go_of_the_driver(stage: Stage) -> None:
    """With every GPU lost nothing of the driver is held, they stay lost, and it looks again later."""
    clock = Clock()
    stage.play(scenarios.healthy(2))
    gpus = stage.collector(monotonic_s=clock)
    collect(gpus)
    lost = tuple(
        gpu.faulty(Failure(EVERY_FUNCTION, "GPU_IS_LOST")) for gpu in scenarios.healthy(2).gpus
    )
    stage.play(replace(scenarios.healthy(2), gpus=lost))
    for _ in range(3):
        found = collect(gpus)
        assert found.states() == dict.fromkeys(GPUS[:2], "gpu_lost")
        clock.now_s += 0.3
    held = stage.held()
    assert held is not None
    assert held.is_released
    stage.play(scenarios.healthy(2))
    assert collect(gpus).state is SignalState.GPU_LOST  # not looked at yet
    clock.now_s += 10
    assert collect(gpus).states() == dict.fromkeys(GPUS[:2], "ok")


def test_hung_gpu_leaves_the_others(stage: Stage) -> None:
    """A GPU whose call hangs is hung, and not called again; the others are read meanwhile, round after round."""
    stage.play(scenarios.healthy(3))
    gpus = stage.collector(deadline_s=2.0)
    collect(gpus)
    hung = scenarios.healthy(3)
    hung = hung.with_gpu(1, hung.gpus[1].faulty(Hang("nvmlDeviceGetPowerUsage")))
    stage.play(hung)
    found = collect(gpus)
    assert found.state is SignalState.HUNG
    assert found.reason == "GPU 1 does not answer (power)"
    assert found.states() == {GPUS[0]: "ok", GPUS[1]: "hung", GPUS[2]: "ok"}
    assert set(found.of(GPUS[1])) == {("tailcause.gpu.state", "hung")}
    begun_s = time.monotonic()
    again = [collect(gpus) for _ in range(5)]
    assert time.monotonic() - begun_s < 5 * 2.0  # nobody waits for it any more
    assert all(("hw.power",) in one.of(GPUS[2]) for one in again)
    assert sum(t.name == "gpu-1" for t in threading.enumerate()) == 1
    stage.play(scenarios.healthy(3))
    back = until(gpus, lambda one: one.state is SignalState.OK)
    assert ("hw.power",) in back.of(GPUS[1])


def test_gpu_that_hangs_from_the_start(stage: Stage) -> None:
    """One that has never answered is told by its number."""
    stage.play(scenarios.healthy(2).with_gpu(0, h100.h100(0).faulty(Hang(EVERY_FUNCTION))))
    gpus = stage.collector(deadline_s=1.0)
    assert collect(gpus).states() == {"nvidia0": "hung", GPUS[1]: "ok"}
    stage.play(scenarios.healthy(2))
    until(gpus, lambda one: one.states() == dict.fromkeys(GPUS[:2], "ok"))


def test_driver_reload(stage: Stage) -> None:
    """After a reload everything is let go of, and the next look finds the new driver."""
    before = stage.play(scenarios.healthy(2))
    gpus = stage.collector()
    collect(gpus)
    stage.play(before.reloaded())
    gone = collect(gpus)
    assert gone.state is SignalState.NOT_SUPPORTED
    assert "driver has gone" in gone.reason
    held = stage.held()
    assert held is not None
    assert held.is_released
    with pytest.raises(OSError, match="cannot open shared object"):
        ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD)  # a new driver brings a new library
    stage.play(replace(before.reloaded(), values={**before.values, "driver": "580.1"}))
    found = collect(gpus)
    assert found.states() == dict.fromkeys(GPUS[:2], "ok")
    infos = [s for s in found.samples if s.metric == "tailcause.gpu.info"]
    assert {s.attributes["hw.driver_version"] for s in infos} == {"580.1"}


def test_gpu_that_is_not_counted_any_more(stage: Stage) -> None:
    """A GPU that a reloaded driver does not find is lost, not forgotten."""
    before = stage.play(scenarios.healthy(3))
    gpus = stage.collector()
    collect(gpus)
    stage.play(replace(before.reloaded(), gpus=(before.gpus[0], before.gpus[2])))
    collect(gpus)
    found = collect(gpus)
    assert found.states() == {GPUS[0]: "ok", GPUS[1]: "gpu_lost", GPUS[2]: "ok"}
    assert found.reason == f"{GPUS[1]} was here and is gone"


def test_lost_gpu_is_looked_for_afresh(stage: Stage) -> None:
    """While one of several is lost, the driver is opened anew every five minutes: a reset GPU is found only so."""
    clock = Clock()
    stage.play(scenarios.lost(3))
    gpus = stage.collector(monotonic_s=clock)
    assert [_inits(gpus, stage) for _ in range(3)] == [1, 1, 1]
    clock.now_s += 301
    assert [_inits(gpus, stage) for _ in range(3)] == [0, 1, 1]


def _inits(gpus: GpuCollector, stage: Stage) -> int:
    """Return how often the library is initialised after a collection, which has the other GPUs in any case."""
    assert collect(gpus).states()[GPUS[0]] == "ok"
    held = stage.held()
    assert held is not None
    return held.inits


def test_driver_away_for_long(stage: Stage) -> None:
    """While there is no driver it is looked for less and less often, and found when it is there."""
    clock = Clock()
    stage.play(scenarios.no_driver())
    gpus = stage.collector(monotonic_s=clock)
    looks = []
    for second in range(40):
        clock.now_s = 1000.0 + second
        found = collect(gpus)
        assert found.state is SignalState.NOT_SUPPORTED
        assert found.reason == "NVML: Driver Not Loaded"
        looks.append(gpus._gpus._failures)
    assert looks[-1] < 10
    stage.play(scenarios.healthy(1))
    clock.now_s += 61
    assert collect(gpus).states() == {GPUS[0]: "ok"}


def test_stopping_releases_everything(stage: Stage) -> None:
    """When the agent stops, no handle, event set or sample of the driver stays."""
    stage.play(scenarios.healthy(2))
    gpus = stage.collector()
    collect(gpus)
    held = stage.held()
    assert held is not None
    assert held.inits == 1
    assert held.event_sets == 1
    assert held.gpm_samples == 4
    gpus.close()
    released = stage.held()
    assert released is not None
    assert released.is_released


def test_stopping_beside_a_hung_gpu(stage: Stage) -> None:
    """A GPU that hangs does not hold up the end."""
    stage.play(scenarios.healthy(2).with_gpu(0, h100.h100(0).faulty(Hang(EVERY_FUNCTION))))
    gpus = stage.collector(deadline_s=0.5)
    collect(gpus)
    begun_s = time.monotonic()
    gpus.close()
    assert time.monotonic() - begun_s < PATIENCE_S
    stage.play(scenarios.healthy(2))
    until(stage.collector(), lambda one: one.states() == dict.fromkeys(GPUS[:2], "ok"))


async def test_watched_collector_is_let_go(stage: Stage) -> None:
    """Closing the watch closes the collector, on the thread that collects."""
    stage.play(scenarios.healthy(1))
    watch = Watch("gpu", stage.collector(), deadline_s=PATIENCE_S)
    assert await watch.collect()
    await watch.close()
    held = stage.held()
    assert held is not None
    assert held.is_released


def test_refused_access_is_no_permission(stage: Stage) -> None:
    """A library that refuses access is told apart, and so is one GPU that does."""
    stage.play(scenarios.healthy(1).faulty(Failure("nvmlInit*", "NO_PERMISSION")))
    assert collect(stage.collector()).state is SignalState.NO_PERMISSION
    refused = scenarios.healthy(2)
    refused = refused.with_gpu(1, refused.gpus[1].faulty(Failure(EVERY_FUNCTION, "NO_PERMISSION")))
    stage.play(refused)
    found = collect(stage.collector())
    assert found.state is SignalState.NO_PERMISSION
    assert found.states() == {GPUS[0]: "ok", "nvidia1": "no_permission"}


def test_gpu_that_tells_nothing_is_not_supported(stage: Stage) -> None:
    """A GPU that the library cannot speak of has that state, and the others their values."""
    scenario = scenarios.healthy(2)
    mute = scenario.gpus[0].faulty(Failure(EVERY_FUNCTION, "NOT_SUPPORTED"))
    stage.play(scenario.with_gpu(0, mute))
    assert collect(stage.collector()).states() == {"nvidia0": "not_supported", GPUS[1]: "ok"}


def test_unknown_error_of_all_releases_the_library(stage: Stage) -> None:
    """When no GPU answers and nobody knows why, the collection fails and nothing is held."""
    stage.play(scenarios.healthy(2).faulty(Failure("nvmlDeviceGetHandle*", "UNKNOWN")))
    with pytest.raises(AgentError, match="GPU 0 fails: Unknown Error"):
        stage.collector().collect()
    held = stage.held()
    assert held is not None
    assert held.is_released


def test_no_gpu_is_not_supported(stage: Stage) -> None:
    """A driver without a GPU is no failure."""
    stage.play(scenarios.healthy(0))
    found = collect(stage.collector())
    assert (found.state, found.reason) == (SignalState.NOT_SUPPORTED, "NVML is there, but no GPU")


def test_missing_library(tmp_path: Path) -> None:
    """Without the driver's library there is no GPU signal, and the path that was looked for is named."""
    missing = str(tmp_path / "libnvidia-ml.so.1")
    context = CollectorContext(gpu=GpuSettings(missing, OFF))
    with pytest.raises(NoData, match=missing) as caught:
        GpuCollector(context).collect()
    assert caught.value.state is SignalState.NOT_SUPPORTED
    assert caught.value.remedy == "check gpu_library"


def test_driver_container_is_looked_into(tmp_path: Path) -> None:
    """After the system's own library those of a driver container are tried; a configured one is the only one."""
    places = candidates(root=tmp_path)
    assert places[0] == "libnvidia-ml.so.1"
    assert str(tmp_path / "usr/lib64/libnvidia-ml.so.1") in places
    assert candidates("/opt/x.so") == ["/opt/x.so"]
