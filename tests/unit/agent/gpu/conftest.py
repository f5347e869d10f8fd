"""The collector through the real binding over the fake library, whose scenario a test changes as it goes."""

import _ctypes
import ctypes
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pynvml
import pytest

from agent.collectors.base import CollectorContext, NoData
from agent.collectors.gpu import GpuCollector
from agent.gpu.library import SONAME
from agent.gpu.settings import OFF, GpuSettings
from agent.host.paths import HostPaths
from agent.telemetry.model import Sample, SignalState
from kernels.fakenvml import build
from kernels.fakenvml.scenario import Scenario
from kernels.fakenvml.status import Status, read_status

PATIENCE_S = 30.0
Key = tuple[str, ...]


@dataclass(frozen=True)
class Round:
    """One collection: its samples, and what the collector says of itself."""

    samples: list[Sample]
    state: SignalState = SignalState.OK
    reason: str = ""

    def of(self, gpu: str) -> dict[Key, float]:
        """Return a GPU's values by metric and further attributes, in order of their keys."""
        own = ("hw.id", "hw.name", "hw.parent", "hw.type")
        return {
            (s.metric, *(str(v) for k, v in sorted(s.attributes.items()) if k not in own)): s.value
            for s in self.samples
            if s.attributes.get("hw.id") == gpu
        }

    def states(self) -> dict[str, str]:
        """Return each GPU's state, by its UUID or, where that is not known, its name."""
        return {
            str(s.attributes.get("hw.id", s.attributes["hw.name"])): str(
                s.attributes["tailcause.gpu.state"]
            )
            for s in self.samples
            if s.metric == "tailcause.gpu.state"
        }

    def xids(self) -> dict[tuple[str, str], float]:
        """Return the counts of Xids by GPU and number."""
        return {
            (str(s.attributes["hw.id"]), str(s.attributes["error.type"])): s.value
            for s in self.samples
            if str(s.attributes.get("error.type", "")).startswith("xid_")
        }


@dataclass
class Stage:
    """A scenario in force, and the collectors that see it."""

    file: Path
    status: Path
    scenario: Scenario | None = None
    collectors: list[GpuCollector] = field(default_factory=list)

    def play(self, scenario: Scenario) -> Scenario:
        """Put a scenario in force."""
        self.scenario = scenario
        scenario.write(self.file)
        return scenario

    def collector(
        self,
        *,
        hide: Iterable[str] = (),
        paths: HostPaths | None = None,
        dcgm: str = OFF,
        deadline_s: float = PATIENCE_S,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> GpuCollector:
        """Return a collector over the library, without some of its functions."""
        settings = GpuSettings(str(build.library(hide)), dcgm, deadline_s)
        context = CollectorContext(paths or HostPaths(), gpu=settings)
        made = GpuCollector(context, monotonic_s=monotonic_s)
        self.collectors.append(made)
        return made

    def held(self) -> Status | None:
        """Return what this process holds of the driver, None before it used the library."""
        found = list(read_status(self.status).values())
        return found[0] if found else None


def collect(collector: GpuCollector) -> Round:
    """Collect once."""
    try:
        return Round(collector.collect())
    except NoData as exc:
        return Round(list(exc.samples), exc.state, exc.reason)


def until(collector: GpuCollector, reached: Callable[[Round], bool]) -> Round:
    """Collect until something holds; fails after half a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached(found := collect(collector)):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Return a stage; what was opened on it is let go of at the end."""
    status = tmp_path / "status"
    status.mkdir()
    made = Stage(tmp_path / "scenario", status)
    monkeypatch.setenv("FAKENVML_SCENARIO", str(made.file))
    monkeypatch.setenv("FAKENVML_STATUS", str(status))
    yield made
    for collector in made.collectors:
        collector.close()
    made.play(Scenario(()))  # what still hangs comes back
    _unload()
    shutil.rmtree(status)


def _unload() -> None:
    """Leave no library behind, which other tests would find by its name."""
    for thread in threading.enumerate():
        if thread.name.startswith("gpu-"):
            thread.join(PATIENCE_S)
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()
    for _ in range(100):
        try:
            loaded = ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD)
        except OSError:
            return
        for _ in range(2):  # this look at it, and one that was never given back
            _ctypes.dlclose(loaded._handle)
    pytest.fail("the fake library cannot be unloaded")
