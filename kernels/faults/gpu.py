"""Faults `gpu-…`: the fake NVML says what is wrong, and the server's steps slow down as they would.

There is no GPU here. The scenario file that the library reads is changed (`kernels/fakenvml`), so that whoever asks NVML
sees the fault; and by the hook the server's runtime takes as long for a step as the device would, its thread asleep.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernels.fakenvml.healing import HealGpu
from kernels.fakenvml.reading import parse
from kernels.fakenvml.scenario import EVERY_FUNCTION, Failure, Hang, Ramp, Scenario, Value
from kernels.fakenvml.scenarios import HW_SLOWDOWN, HW_THERMAL
from kernels.faults.base import FaultContext, FaultError, FaultKind, Injection, interpolate
from kernels.faults.hook import NEEDS, disturb
from kernels.workload.hook_requests import HookRequest, SlowSteps, StallSteps

SLOWDOWN = ((1.5, 1.25), (3.0, 1.7), (6.0, 2.2))
"""(P99 factor, factor on every step), measured at 20 requests/s: slower steps make larger batches, too."""

ROW_REMAP_XID, CONTAINED_ECC_XID = 63, 94
"""NVIDIA's XID catalogue: a row has been remapped; an uncorrectable error was contained in a process."""

Change = Callable[[Scenario, int, float], Scenario]


@dataclass(frozen=True)
class GpuFault:
    """Changes one GPU of the scenario, then what the server's steps cost."""

    name: str
    description: str
    change: Change
    stalls: bool = False
    kind: FaultKind = FaultKind.FAULT
    variants: tuple[str, ...] = ()
    needs: tuple[str, ...] = NEEDS

    def inject(self, context: FaultContext) -> Injection:
        """Slow the server down and put the changed scenario in force."""
        path, before = _scenario_of(context)
        scenario = parse(before)
        index = context.rng(self.name).randrange(len(scenario.gpus))
        factor = interpolate(SLOWDOWN, context.options.intensity)
        context.reaper.add(HealGpu(str(path), index, before))
        request: HookRequest = StallSteps() if self.stalls else SlowSteps(factor)
        held = disturb(context, request)
        self.change(scenario.rebased(), index, factor).write(path)
        return Injection(
            target=context.target,
            parameters={
                "gpu": index,
                "uuid": str(scenario.gpus[index].values.get("uuid", "")),
                "step_factor": None if self.stalls else round(factor, 3),
            },
            held=held,
        )


def _scenario_of(context: FaultContext) -> tuple[Path, str]:
    path = context.options.gpus
    if path is None:
        raise FaultError("which GPUs? give --gpus FILE, the scenario that the fake NVML reads")
    try:
        text = path.read_text()
    except OSError as exc:
        raise FaultError(f"cannot read --gpus {path}: {exc.strerror}") from exc
    if not parse(text).gpus:
        raise FaultError(
            f"--gpus {path} has no GPU: write one with `python -m kernels.fakenvml.stage`"
        )
    return path.absolute(), text


def throttle(scenario: Scenario, index: int, factor: float) -> Scenario:
    """Hold the clocks back by the heat: as much slower as the steps, and counted as time in violation."""
    values = scenario.gpus[index].values
    clocks: dict[str, Value] = {
        key: round(_number(values[key]) / factor)
        for key in ("clock.sm", "clock.graphics")
        if key in values
    }
    counted = values.get("violation.thermal")
    hot: dict[str, Value] = {
        "clocks.reasons": HW_SLOWDOWN | HW_THERMAL,
        "temperature.gpu": 90,
        "violation.thermal": Ramp(_number(counted), (1 - 1 / factor) * 1e9),
    }
    return scenario.having(index, clocks | hot)


def xid(scenario: Scenario, index: int, _factor: float) -> Scenario:
    """Report a contained memory error and the row that is remapped for it."""
    values = scenario.gpus[index].values
    counters: tuple[str, ...] = ("ecc.volatile.uncorrected", "ecc.volatile.uncorrected.dram")
    counters += (
        "ecc.aggregate.uncorrected",
        "ecc.aggregate.uncorrected.dram",
        "remapped.uncorrectable",
    )
    worse: dict[str, Value] = {key: int(_number(values.get(key))) + 1 for key in counters}
    told = scenario.having(index, worse | {"remapped.pending": 1})
    return told.with_xid(index, CONTAINED_ECC_XID).with_xid(index, ROW_REMAP_XID)


def lost(scenario: Scenario, index: int, _factor: float) -> Scenario:
    """Have every call about the GPU say that it has fallen off the bus (XID 79)."""
    told = scenario.with_xid(index, 79)
    return told.with_gpu(index, told.gpus[index].faulty(Failure(EVERY_FUNCTION, "GPU_IS_LOST")))


def hung(scenario: Scenario, index: int, _factor: float) -> Scenario:
    """Have every call about the GPU block."""
    return scenario.with_gpu(index, scenario.gpus[index].faulty(Hang(EVERY_FUNCTION)))


def _number(value: Value | None) -> float:
    if isinstance(value, Ramp):
        return value.base
    return float(value) if isinstance(value, int | float) else 0.0


GPU_THROTTLE = GpuFault("gpu-throttle", "a hot GPU lowers its clocks (fake NVML)", throttle)
GPU_XID = GpuFault("gpu-xid", "a GPU reports memory errors and gets slower (fake NVML)", xid)
GPU_LOST = GpuFault(
    "gpu-lost", "a GPU falls off the bus, no step ends (fake NVML)", lost, stalls=True
)
GPU_HUNG = GpuFault("gpu-hung", "a GPU answers nobody, no step ends (fake NVML)", hung, stalls=True)
