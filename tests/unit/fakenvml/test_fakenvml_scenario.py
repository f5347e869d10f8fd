"""Scenarios as data: what they render to, what they refuse, how they change."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels.fakenvml import build, scenarios, stage
from kernels.fakenvml.errors import FakeNvmlError
from kernels.fakenvml.keys import DEVICE, MIG, unknown_keys
from kernels.fakenvml.reading import parse, read_scenario
from kernels.fakenvml.scenario import (
    Event,
    Failure,
    Gpu,
    Hang,
    Mig,
    Process,
    Ramp,
    Scenario,
)
from tests.support.nvml_session import NvmlSession

SOURCES = build.SOURCES


def test_rendered_text() -> None:
    """Every kind of statement is rendered as the library reads it."""
    gpu = Gpu(
        {"name": "NVIDIA X", "energy": Ramp(1000, 2.5), "power.usage": 7},
        migs=(Mig({"uuid": "MIG-1", "gi": 1}, (Hang("*", 2),)),),
        processes=(
            Process(1, 2048, use=(1, 2, 3, 4)),
            Process(2, kind="graphics", instance=(1, 0)),
        ),
        faults=(Failure("nvmlDeviceGetName", "NO_PERMISSION"), Hang("nvmlInit*")),
        events=(Event(1, 2.5, "xid", 79, (1, 0)), Event(2, 3.0, "xid", 79)),
    )
    scenario = Scenario((gpu,), {"driver": "1"}, (Failure("nvmlInit*", "UNKNOWN"),), 3, 4.5)
    assert scenario.render().split("\n") == [
        "epoch 4.500000",
        "generation 3",
        "  driver 1",
        "  fail nvmlInit* UNKNOWN",
        "",
        "gpu",
        "  name NVIDIA X",
        "  energy 1000 +2.5/s",
        "  power.usage 7",
        "  fail nvmlDeviceGetName NO_PERMISSION",
        "  hang nvmlInit* 3600",
        "  process 1 kind=compute memory=2048 sm=1 mem=2 enc=3 dec=4",
        "  process 2 kind=graphics gi=1 ci=0",
        "  event 1 2.500000 xid 79 gi=1 ci=0",
        "  event 2 3.000000 xid 79",
        "mig",
        "  uuid MIG-1",
        "  gi 1",
        "  hang * 2",
        "",
    ]


@pytest.mark.parametrize("name", sorted(scenarios.SCENARIOS))
def test_read_back(name: str, tmp_path: Path) -> None:
    """A scenario that was written is read back as it was: written again, the file is the same."""
    scenario = scenarios.SCENARIOS[name]().with_xid(0, 79).having(0, {"serial": "012.50"})
    scenario.write(tmp_path / "gpus")
    assert read_scenario(tmp_path / "gpus").render() == scenario.render()


def test_read_back_by_hand() -> None:
    """Comments, hexadecimal numbers and whatever was left out are understood as the library does."""
    scenario = parse("# by hand\n\ngpu\n  clocks.reasons 0x48\n  process 7 sm=5\n")
    assert scenario.gpus == (
        Gpu({"clocks.reasons": 0x48}, processes=(Process(7, use=(5, 0, 0, 0)),)),
    )
    assert (scenario.generation, dict(scenario.values)) == (0, {})


@pytest.mark.parametrize(
    "text",
    [
        "mig",
        "gpu\n minor",
        "gpu\n process x",
        "gpu\n process 1 a=b",
        "gpu\n fail x",
        "event 1 2 xid",
    ],
)
def test_read_back_nonsense(text: str) -> None:
    """A statement that makes no sense is an error that names its line."""
    with pytest.raises(FakeNvmlError, match=f"line {len(text.splitlines())} "):
        parse(text)


def test_fault_on_the_scenario_in_force(start: Callable[[Scenario], NvmlSession]) -> None:
    """What is in force can be read, made worse and put back, and its counters go on meanwhile."""
    session = start(scenarios.healthy(2))
    before = session.ask("n.nvmlDeviceGetTotalEnergyConsumption(device(0))")
    calm = read_scenario(session.scenario_path)
    hot = calm.rebased().having(0, {"clock.sm": 990, "violation.thermal": Ramp(0, 0.5e9)})
    session.stage(hot)
    assert session.ask("n.nvmlDeviceGetClockInfo(device(0), n.NVML_CLOCK_SM)") == 990
    between = session.ask("n.nvmlDeviceGetTotalEnergyConsumption(device(0))")
    session.stage(calm)
    assert session.ask("n.nvmlDeviceGetClockInfo(device(0), n.NVML_CLOCK_SM)") == 1980
    assert before <= between <= session.ask("n.nvmlDeviceGetTotalEnergyConsumption(device(0))")


@pytest.mark.parametrize("key", ["power.usge", "nvlink.x.tx", "field.", "N"])
def test_key_that_nothing_reads(key: str) -> None:
    """A key that the library does not know is an error, not a line without effect."""
    with pytest.raises(FakeNvmlError, match="nothing reads"):
        scenarios.healthy(1).having(0, {key: 1}).render()


@pytest.mark.parametrize("text", ["", "two\nlines"])
def test_text_of_one_line(text: str) -> None:
    """A text that cannot stand in one line is an error."""
    with pytest.raises(FakeNvmlError, match="one line"):
        scenarios.healthy(1).having(0, {"name": text}).render()


def test_every_key_is_read_by_the_library() -> None:
    """What the table of keys promises stands in the sources: whole, or as the parts it is built of."""
    code = "".join(path.read_text() for path in SOURCES.glob("*.c"))
    whole = [key for key in (*DEVICE, *MIG) if not key.startswith(("ecc.volatile", "ecc.aggr"))]
    missing = [
        key
        for key in whole
        if f'"{key}"' not in code and f'"{key.rsplit(".", 1)[-1]}"' not in code and "N" not in key
    ]
    assert missing == []


def test_lacking_takes_what_is_below() -> None:
    """A key with a dot at its end takes all that begins with it; another takes itself."""
    gpu = Gpu({"ecc.mode": 1, "ecc.volatile.corrected": 2, "energy": 3, "events": 4})
    assert gpu.lacking("ecc.", "events").values == {"energy": 3}


def test_rebased_counter_does_not_jump() -> None:
    """A ramp begins anew where it has got to, in the GPU and in its MIG devices."""
    gpu = Gpu({"energy": Ramp(100, 10)}, migs=(Mig({"gpm.2": Ramp(0, 1)}),))
    rebased = Scenario((gpu,), epoch_s=50.0).rebased(now_s=53.0)
    assert rebased.epoch_s == 53.0
    assert rebased.gpus[0].values == {"energy": Ramp(130, 10)}
    assert rebased.gpus[0].migs[0].values == {"gpm.2": Ramp(3, 1)}


def test_changes_leave_the_original() -> None:
    """A change gives a new scenario."""
    healthy = scenarios.healthy(2)
    changed = healthy.having(1, {"power.usage": 1}).with_xid(0, 79).reloaded()
    assert healthy == Scenario(healthy.gpus, epoch_s=healthy.epoch_s)
    assert (changed.generation, len(changed.gpus[0].events)) == (2, 1)
    assert changed.gpus[0].values == healthy.gpus[0].values


def test_uuids_are_stable_and_distinct() -> None:
    """The UUIDs of the ready-made scenarios never change, and no two devices share one."""
    uuids = [scenarios.gpu_uuid(i) for i in range(8)]
    uuids += [scenarios.mig_uuid(0, i) for i in range(7)]
    assert len(set(uuids)) == 15
    assert uuids[0] == "GPU-f85f0a20-5b25-5ccc-9664-219530fc99de"


def test_stage_writes_a_scenario(tmp_path: Path) -> None:
    """The command puts a ready-made scenario into a file."""
    file = tmp_path / "gpus"
    assert stage.main(["time-sliced", str(file)]) == 0
    assert file.read_text().count("process 60") == 3


def test_stage_says_why_it_cannot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is not there is an error of one line."""
    assert stage.main(["lost", str(tmp_path / "no" / "gpus")]) == 2
    assert capsys.readouterr().err.startswith("cannot write ")


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler the error says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FakeNvmlError, match="apt-get install gcc"):
        build.library(cache=tmp_path)


def test_hide_wants_a_function() -> None:
    """Something that cannot be a function of NVML is refused."""
    with pytest.raises(FakeNvmlError, match=r"not a function of NVML: nvmlGpm\*"):
        build.library(["nvmlGpm*"])


def test_kernels_keys_of_ready_made_scenarios() -> None:
    """The ready-made scenarios use known keys alone."""
    used = {
        key for make in scenarios.SCENARIOS.values() for gpu in make().gpus for key in gpu.values
    }
    assert unknown_keys(used) == []


def test_build_prints_the_path(nvml_library: Path) -> None:
    """The command prints where the library is."""
    done = subprocess.run(
        [sys.executable, "-m", "kernels.fakenvml.build"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout.strip() == str(nvml_library)
