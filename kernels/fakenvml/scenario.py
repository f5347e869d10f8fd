"""Scenarios as data: what the fake NVML shall say, rendered to the file that it reads.

Everything is frozen; a change gives a new scenario, and `write` puts it in force at once for
every process that has the library loaded. The language is described in this folder's README.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from kernels.fakenvml.errors import FakeNvmlError
from kernels.fakenvml.keys import unknown_keys
from kernels.supervisor.files import write_atomically

EVERY_FUNCTION = "*"
MAX_EVENT_ID = 4095


@dataclass(frozen=True)
class Ramp:
    """A value that grows by `per_s` each second from the scenario's epoch on."""

    base: float
    per_s: float

    def at(self, elapsed_s: float) -> float:
        """Return the value after that many seconds."""
        return self.base + self.per_s * max(0.0, elapsed_s)


Value = int | float | str | Ramp
Values = Mapping[str, Value]


@dataclass(frozen=True)
class Process:
    """A process on a GPU; memory None is "not available", `use` is (sm, mem, enc, dec) in percent."""

    pid: int
    memory_bytes: int | None = None
    kind: str = "compute"
    use: tuple[int, int, int, int] | None = None
    instance: tuple[int, int] | None = None
    """GPU instance and compute instance, under MIG."""


@dataclass(frozen=True)
class Failure:
    """Every function that matches the pattern (fnmatch, versions included) returns the code."""

    function: str
    code: str


@dataclass(frozen=True)
class Hang:
    """Every function that matches the pattern blocks so long, or until the scenario drops it."""

    function: str
    seconds: float = 3600.0


Fault = Failure | Hang


@dataclass(frozen=True)
class Event:
    """Something that event sets registered before `at_s` (CLOCK_MONOTONIC) hear of, once each."""

    id: int
    at_s: float
    kind: str
    data: int
    instance: tuple[int, int] | None = None


@dataclass(frozen=True)
class Mig:
    """A MIG device: its values and its own faults. Its processes are listed with the GPU."""

    values: Values
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class Gpu:
    """A GPU: a key without a value is something that it does not support."""

    values: Values
    migs: tuple[Mig, ...] = ()
    processes: tuple[Process, ...] = ()
    faults: tuple[Fault, ...] = ()
    events: tuple[Event, ...] = ()

    def having(self, values: Values) -> "Gpu":
        """Return the GPU with these values changed or added."""
        return replace(self, values={**self.values, **values})

    def lacking(self, *keys: str) -> "Gpu":
        """Return the GPU without these keys; one that ends with a dot takes all below it."""
        kept = {
            key: value
            for key, value in self.values.items()
            if not any(
                key == gone or (gone.endswith(".") and key.startswith(gone)) for gone in keys
            )
        }
        return replace(self, values=kept)

    def faulty(self, *faults: Fault) -> "Gpu":
        """Return the GPU with more faults."""
        return replace(self, faults=(*self.faults, *faults))


@dataclass(frozen=True)
class Scenario:
    """All that the library says; index in `gpus` is NVML's index."""

    gpus: tuple[Gpu, ...]
    values: Values = field(
        default_factory=lambda: MappingProxyType(
            {"driver": "570.133.20", "nvml": "12.570.133.20", "cuda": 12080}
        )
    )
    faults: tuple[Fault, ...] = ()
    generation: int = 1
    """Of the driver: a change makes whatever is initialised say UNINITIALIZED until it starts anew."""

    epoch_s: float = field(default_factory=time.monotonic)

    def with_gpu(self, index: int, gpu: Gpu) -> "Scenario":
        """Return the scenario with one GPU replaced."""
        return replace(self, gpus=(*self.gpus[:index], gpu, *self.gpus[index + 1 :]))

    def having(self, index: int, values: Values) -> "Scenario":
        """Return the scenario with values of one GPU changed or added."""
        return self.with_gpu(index, self.gpus[index].having(values))

    def faulty(self, *faults: Fault) -> "Scenario":
        """Return the scenario with more faults that hold for the node and for every GPU."""
        return replace(self, faults=(*self.faults, *faults))

    def with_xid(self, index: int, code: int, at_s: float | None = None) -> "Scenario":
        """Return the scenario with an XID of one GPU, now or at a CLOCK_MONOTONIC time."""
        return self.with_event(index, "xid", code, at_s)

    def with_event(self, index: int, kind: str, data: int, at_s: float | None = None) -> "Scenario":
        """Return the scenario with one more event; equal ones are told apart by their id."""
        used = [event.id for gpu in self.gpus for event in gpu.events]
        new = Event(
            max(used, default=0) + 1, time.monotonic() if at_s is None else at_s, kind, data
        )
        if new.id > MAX_EVENT_ID:
            raise FakeNvmlError(f"a scenario holds at most {MAX_EVENT_ID} events")
        gpu = self.gpus[index]
        return self.with_gpu(index, replace(gpu, events=(*gpu.events, new)))

    def reloaded(self) -> "Scenario":
        """Return the scenario after the driver was unloaded and loaded again."""
        return replace(self, generation=self.generation + 1)

    def rebased(self, now_s: float | None = None) -> "Scenario":
        """Return the scenario with its epoch now and every ramp where it has got to by now.

        Do this before changing a rate, or the counter jumps.
        """
        now_s = time.monotonic() if now_s is None else now_s
        elapsed_s = now_s - self.epoch_s
        gpus = tuple(
            replace(
                gpu,
                values=_advanced(gpu.values, elapsed_s),
                migs=tuple(
                    replace(mig, values=_advanced(mig.values, elapsed_s)) for mig in gpu.migs
                ),
            )
            for gpu in self.gpus
        )
        return replace(self, gpus=gpus, epoch_s=now_s)

    def render(self) -> str:
        """Return the file's text; raises `FakeNvmlError` for a key that nothing reads."""
        lines = [f"epoch {self.epoch_s:.6f}", f"generation {self.generation}"]
        lines += [*_section(self.values, self.faults)]
        for gpu in self.gpus:
            lines += ["", "gpu", *_section(gpu.values, gpu.faults)]
            lines += [_process(process) for process in gpu.processes]
            lines += [_event(event) for event in gpu.events]
            for mig in gpu.migs:
                lines += ["mig", *_section(mig.values, mig.faults)]
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> None:
        """Put the scenario in force: the library sees either the old file or all of the new one."""
        write_atomically(path, self.render().encode())


def _advanced(values: Values, elapsed_s: float) -> Values:
    return {
        key: Ramp(value.at(elapsed_s), value.per_s) if isinstance(value, Ramp) else value
        for key, value in values.items()
    }


def _section(values: Values, faults: tuple[Fault, ...]) -> list[str]:
    if unknown := unknown_keys(values):
        raise FakeNvmlError(f"nothing reads {', '.join(unknown)}: see kernels/fakenvml/keys.py")
    return [
        *(f"  {key} {_value(value)}" for key, value in values.items()),
        *(f"  {_fault(fault)}" for fault in faults),
    ]


def _value(value: Value) -> str:
    if isinstance(value, Ramp):
        return f"{_number(value.base)} {value.per_s:+.17g}/s"
    if isinstance(value, str):
        if not value.strip() or "\n" in value:
            raise FakeNvmlError(f"a text must be one line that is not empty: {value!r}")
        return value
    return _number(value)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.17g}"


def _fault(fault: Fault) -> str:
    if isinstance(fault, Hang):
        return f"hang {fault.function} {fault.seconds:g}"
    return f"fail {fault.function} {fault.code}"


def _process(process: Process) -> str:
    words = [f"  process {process.pid} kind={process.kind}"]
    if process.memory_bytes is not None:
        words.append(f"memory={process.memory_bytes}")
    if process.use is not None:
        words += [f"{n}={v}" for n, v in zip(("sm", "mem", "enc", "dec"), process.use, strict=True)]
    if process.instance is not None:
        words += [f"gi={process.instance[0]}", f"ci={process.instance[1]}"]
    return " ".join(words)


def _event(event: Event) -> str:
    line = f"  event {event.id} {event.at_s:.6f} {event.kind} {event.data}"
    if event.instance is not None:
        line += f" gi={event.instance[0]} ci={event.instance[1]}"
    return line
