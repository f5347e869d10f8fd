"""GPU faults as changes of a scenario, and how they heal."""

from pathlib import Path

import pytest

from kernels.fakenvml.healing import HealGpu, healed
from kernels.fakenvml.reading import parse, read_scenario
from kernels.fakenvml.scenario import Failure, Ramp, Scenario
from kernels.fakenvml.scenarios import healthy
from kernels.faults.gpu import Change, hung, lost, throttle, xid
from kernels.supervisor.actions import perform


def count(scenario: Scenario, key: str, index: int = 0) -> float:
    """Read a counter at the scenario's epoch."""
    value = scenario.gpus[index].values[key]
    assert not isinstance(value, str)
    return value.base if isinstance(value, Ramp) else float(value)


def test_clocks_fall_as_far_as_the_steps_slow_down() -> None:
    """Half the speed is half the clock, and half of the time in violation."""
    hot = throttle(healthy(), 1, 2.0)

    assert hot.gpus[1].values["clock.sm"] == 990
    assert hot.gpus[1].values["violation.thermal"] == Ramp(0.0, 0.5e9)
    assert hot.gpus[0] == healthy().gpus[0]


@pytest.mark.parametrize("change", [throttle, xid, lost, hung])
def test_a_change_can_be_written_and_read_back(change: Change, tmp_path: Path) -> None:
    """What the library reads is what was meant."""
    file = tmp_path / "gpus"
    changed = change(healthy(2), 0, 2.0)

    changed.write(file)

    assert read_scenario(file).gpus == parse(changed.render()).gpus
    assert changed.gpus[1] == healthy(2).gpus[1]


@pytest.mark.parametrize("change", [throttle, xid, lost, hung])
def test_healing_puts_states_back_and_lets_no_counter_fall(change: Change) -> None:
    """Ten seconds later: faults are gone, counters stand where they got to, and go on at the old pace."""
    sound = healthy(2)
    sick = change(sound.rebased(sound.epoch_s + 5), 0, 2.0)

    well = healed(sick, sound, 0, at_s=sick.epoch_s + 10)

    assert well.gpus[0].faults == ()
    assert well.gpus[0].values["clock.sm"] == sound.gpus[0].values["clock.sm"]
    assert well.gpus[0].values["clocks.reasons"] == 0
    assert well.gpus[0].events == sick.gpus[0].events
    worst = sick.rebased(sick.epoch_s + 10)
    counters = ("energy", "violation.thermal", "ecc.volatile.uncorrected", "remapped.uncorrectable")
    assert [count(well, key) for key in counters] == [count(worst, key) for key in counters]
    assert well.gpus[0].values["energy"] == Ramp(count(worst, "energy"), 412_500)
    assert set(well.gpus[0].values) == set(sound.gpus[0].values)


def test_healing_leaves_what_others_have_changed(tmp_path: Path) -> None:
    """Another GPU's fault stays; a file that is gone needs nothing."""
    file = tmp_path / "gpus"
    before = healthy(2)
    sick = lost(before, 0, 2.0)
    sick.with_gpu(1, sick.gpus[1].faulty(Failure("nvmlDeviceGetName", "UNKNOWN"))).write(file)

    perform(HealGpu(str(file), 0, before.render()))
    perform(HealGpu(str(tmp_path / "gone"), 0, before.render()))

    now = read_scenario(file)
    assert now.gpus[0].faults == ()
    assert now.gpus[1].faults == (Failure("nvmlDeviceGetName", "UNKNOWN"),)
    assert [path.name for path in tmp_path.iterdir()] == ["gpus"]
