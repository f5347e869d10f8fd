"""The ground truth of an injection, kept where a detector does not read it."""

from pathlib import Path

import msgspec

from kernels.faults.base import Fault, FaultError, Injection
from kernels.supervisor.files import write_atomically


class Truth(msgspec.Struct, frozen=True):
    """What was done to whom, and when; `ended_unix_s` is set once all is undone."""

    fault: str
    kind: str
    target: str
    intensity: float
    started_unix_s: float
    ended_unix_s: float | None
    parameters: dict[str, object]


def truth_of(fault: Fault, injection: Injection, intensity: float) -> Truth:
    """Describe an injection that has just come into force."""
    return Truth(
        fault=fault.name,
        kind=str(fault.kind),
        target=injection.target,
        intensity=intensity,
        started_unix_s=injection.started_unix_s,
        ended_unix_s=None,
        parameters=injection.parameters,
    )


def write_truth(path: Path, truth: Truth) -> None:
    """Write it in one step, readable for its owner alone."""
    try:
        write_atomically(path, msgspec.json.encode(truth))
    except OSError as exc:
        raise FaultError(f"cannot write --truth {path}: {exc.strerror}") from exc
