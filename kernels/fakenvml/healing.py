"""Takes a GPU fault back, as a machine heals: states return, counters keep what they have counted."""

from pathlib import Path

import msgspec

from kernels.fakenvml.reading import parse, read_scenario
from kernels.fakenvml.scenario import Gpu, Ramp, Scenario, Value

_COUNTERS = ("ecc.volatile.", "ecc.aggregate.", "remapped.", "violation.")
"""Keys that only grow while the driver is loaded, whether they are written as a ramp or not."""


class HealGpu(msgspec.Struct, frozen=True, tag="heal_gpu"):
    """Undo what was done to one GPU of a scenario file; `before` is the text that it held."""

    path: str
    index: int
    before: str


def heal_gpu(action: HealGpu) -> None:
    """Carry out the action; a file that is gone needs nothing."""
    path = Path(action.path)
    if path.exists():
        healed(read_scenario(path), parse(action.before), action.index).write(path)


def healed(now: Scenario, before: Scenario, index: int, at_s: float | None = None) -> Scenario:
    """Return the scenario with one GPU as it was before, and no counter that falls."""
    now = now.rebased(at_s)
    sick, sound = now.gpus[index], before.gpus[index]
    values = {key: _kept(key, sick.values.get(key), was) for key, was in sound.values.items()}
    return now.with_gpu(
        index, Gpu(values, sound.migs, sound.processes, sound.faults, events=sick.events)
    )


def _kept(key: str, sick: Value | None, sound: Value) -> Value:
    """Go on counting at the old pace from where a counter has got to; anything else is as it was."""
    if isinstance(sick, Ramp):
        return Ramp(sick.base, sound.per_s) if isinstance(sound, Ramp) else _whole(sick.base)
    return sick if sick is not None and key.startswith(_COUNTERS) else sound


def _whole(count: float) -> int:
    return round(count)
