"""The commands on a machine with GPUs: each in a process of its own, over the fake library."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent import config_load
from agent.errors import ConfigError
from agent.gpu.settings import GpuSettings
from kernels.fakenvml import build, scenarios
from kernels.fakenvml.scenario import Scenario
from kernels.fakenvml.status import read_status


def answer(folder: Path, command: str, scenario: Scenario) -> tuple[int, dict[str, Any]]:
    """Return exit code and answer of a command that reads GPUs alone."""
    scenario.write(folder / "scenario")
    done = subprocess.run(
        [sys.executable, "-m", "agent.cli", command, "--json", "--gpu-dcgm", "off", "--no-ebpf"],
        env={
            **os.environ,
            "FAKENVML_SCENARIO": str(folder / "scenario"),
            "FAKENVML_STATUS": str(folder),
            "TAILCAUSE_AGENT_GPU_LIBRARY": str(build.library()),
            "TAILCAUSE_AGENT_OTLP_PORT": "0",
            "TAILCAUSE_AGENT_METRICS_PORT": "0",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_once_shows_values_and_states(tmp_path: Path) -> None:
    """With one GPU lost the signal says so, and has the other's values and the state of both."""
    scenario = scenarios.lost(1)
    _, found = answer(tmp_path, "once", scenario)
    (gpu,) = (signal for signal in found["signals"] if signal["signal"] == "gpu")
    states = [s["attributes"] for s in gpu["samples"] if s["metric"] == "tailcause.gpu.state"]
    assert gpu["state"] == "gpu_lost"
    assert gpu["reason"].startswith("GPU 1 is lost")
    assert [s["tailcause.gpu.state"] for s in states] == ["ok", "gpu_lost", *["ok"] * 6]
    assert all(status.is_released for status in read_status(tmp_path).values())


def test_doctor_says_what_to_do(tmp_path: Path) -> None:
    """A lost GPU is a finding with a remedy."""
    code, found = answer(tmp_path, "doctor", scenarios.lost(1))
    (gpu,) = (finding for finding in found["findings"] if finding["name"] == "gpu")
    assert code == 1
    assert gpu["state"] == "gpu_lost"
    assert "reset the GPU" in gpu["remedy"]
    assert gpu["values"] > 100


def test_settings() -> None:
    """The library's path and the exporter's URL are settings; a GPU gets a part of the signal's time."""
    found = config_load.load(
        None, {}, {"gpu_library": "/x.so", "gpu_dcgm": "http://h:1", "deadline": "1.5s"}
    )
    assert found.gpu == GpuSettings("/x.so", "http://h:1", 0.5)
    assert config_load.load(None, {}, {"gpu_dcgm": "off"}).gpu == GpuSettings("", "off", 1.0)
    with pytest.raises(ConfigError, match="gpu_dcgm must be a URL"):
        config_load.load(None, {}, {"gpu_dcgm": "localhost"})


def test_signals_shows_dcgms_names() -> None:
    """Whoever looks for the name of a dashboard finds the metric."""
    done = subprocess.run(
        [sys.executable, "-m", "agent.cli", "signals", "--json"],
        capture_output=True,
        timeout=120,
        check=True,
    )
    rows = {row["name"]: row["aliases"] for row in json.loads(done.stdout)["metrics"]}
    assert rows["hw.energy"] == ["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"]
