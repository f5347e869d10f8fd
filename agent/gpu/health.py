"""What hw.status says of a GPU, from what was read of it."""

from collections.abc import Iterable, Iterator

from agent.gpu.fields import GPU_TYPE, Value
from agent.telemetry.keys import ERROR_TYPE, HW_STATE, REASON

_FAILING = frozenset(("tailcause.gpu.remapped_rows.failed",))
_WAITING = frozenset(
    ("tailcause.gpu.remapped_rows.pending", "tailcause.gpu.retired_pages.pending"),
)
_SLOWED = frozenset(("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"))
STATES = ("ok", "degraded", "failed", "predicted_failure")
"""Of the conventions' states, those that a GPU can be in."""


def states(state: str) -> Iterator[Value]:
    """Yield a 1 for the state and a 0 for the others."""
    for one in STATES:
        yield "hw.status", float(one == state), {**GPU_TYPE, HW_STATE: one}


def judge(values: Iterable[Value]) -> str:
    """Return the state of a GPU that answers.

    A row that could not be remapped foretells the end of its memory (NVIDIA GPU Memory Error Management, "RMA Policy");
    a reset that is due, hardware slow-down and memory errors that could not be corrected degrade it.
    """
    degraded = False
    for metric, value, attributes in values:
        if not value:
            continue
        if metric in _FAILING:
            return "predicted_failure"
        degraded |= metric in _WAITING
        degraded |= metric == "tailcause.gpu.clock.event" and attributes[REASON] in _SLOWED
        degraded |= attributes.get(ERROR_TYPE) == "ecc_uncorrected_volatile"
    return "degraded" if degraded else "ok"
