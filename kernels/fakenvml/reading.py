"""Reads a scenario file back, so that a fault can change the one in force without knowing who wrote it."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kernels.fakenvml.errors import FakeNvmlError
from kernels.fakenvml.keys import is_text
from kernels.fakenvml.scenario import (
    Event,
    Failure,
    Fault,
    Gpu,
    Hang,
    Mig,
    Process,
    Ramp,
    Scenario,
    Value,
)

_RAMP = re.compile(r"(\S+) ([+-]\S+)/s")
_USES = ("sm", "mem", "enc", "dec")


def read_scenario(path: Path) -> Scenario:
    """Return the scenario in a file; raises `FakeNvmlError` with the line that makes no sense."""
    try:
        return parse(path.read_text())
    except OSError as exc:
        raise FakeNvmlError(f"cannot read {path}: {exc.strerror}") from exc


def parse(text: str) -> Scenario:
    """Return what the text of a file says."""
    file = _File()
    for number, line in enumerate(text.splitlines(), 1):
        word, _, rest = line.strip().partition(" ")
        if not word or word.startswith("#"):
            continue
        try:
            file.read(word, rest.strip())
        except ValueError as exc:
            raise FakeNvmlError(f"line {number} of the scenario makes no sense: {line}") from exc
    return file.scenario()


@dataclass
class _Section:
    """What has been read of the node, a GPU or a MIG device so far."""

    values: dict[str, Value] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    migs: list["_Section"] = field(default_factory=list)

    def gpu(self) -> Gpu:
        """Return the section as a GPU."""
        migs = tuple(Mig(mig.values, tuple(mig.faults)) for mig in self.migs)
        return Gpu(self.values, migs, tuple(self.processes), tuple(self.faults), tuple(self.events))


class _File:
    """Takes statements one by one, as the library does."""

    def __init__(self) -> None:
        self._node = _Section()
        self._gpus: list[_Section] = []
        self._last = self._node

    def read(self, word: str, rest: str) -> None:
        """Take one statement; raises ValueError when it makes no sense."""
        if word == "gpu":
            self._last = _Section()
            self._gpus.append(self._last)
        elif word == "mig":
            if not self._gpus:
                raise ValueError("a MIG device needs a gpu before it")
            self._last = _Section()
            self._gpus[-1].migs.append(self._last)
        else:
            _STATEMENTS.get(word, _value)(self._last, word, rest)

    def scenario(self) -> Scenario:
        """Return the whole; without an epoch it begins now, as for the library."""
        values = dict(self._node.values)
        epoch, generation = values.pop("epoch", None), values.pop("generation", 0)
        return Scenario(
            tuple(section.gpu() for section in self._gpus),
            values,
            tuple(self._node.faults),
            generation if isinstance(generation, int) else 0,
            float(epoch) if isinstance(epoch, int | float) else time.monotonic(),
        )


def _value(section: _Section, key: str, rest: str) -> None:
    if not rest:
        raise ValueError("a key needs a value")
    if is_text(key):
        section.values[key] = rest
    elif ramp := _RAMP.fullmatch(rest):
        section.values[key] = Ramp(float(ramp[1]), float(ramp[2]))
    else:
        section.values[key] = _number(rest)


def _number(text: str) -> Value:
    """Return a number where the text is one, in decimal or hexadecimal."""
    for convert in (lambda t: int(t, 0), float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def _fault(section: _Section, word: str, rest: str) -> None:
    pattern, what = rest.split()
    section.faults.append(Hang(pattern, float(what)) if word == "hang" else Failure(pattern, what))


def _process(section: _Section, _word: str, rest: str) -> None:
    pid, *words = rest.split()
    options = _options(words, ("kind", "memory", *_USES, "gi", "ci"))
    used = any(name in options for name in _USES)
    section.processes.append(
        Process(
            int(pid),
            int(options["memory"]) if "memory" in options else None,
            options.get("kind", "compute"),
            _use(options) if used else None,
            _instance(options),
        )
    )


def _event(section: _Section, _word: str, rest: str) -> None:
    number, at_s, kind, data, *words = rest.split()
    instance = _instance(_options(words, ("gi", "ci")))
    section.events.append(Event(int(number), float(at_s), kind, int(data), instance))


def _options(words: list[str], known: tuple[str, ...]) -> dict[str, str]:
    options = dict(word.split("=", 1) for word in words)
    if not set(options) <= set(known):
        raise ValueError("unknown option")
    return options


def _use(options: dict[str, str]) -> tuple[int, int, int, int]:
    sm, mem, enc, dec = (int(options.get(name, 0)) for name in _USES)
    return sm, mem, enc, dec


def _instance(options: dict[str, str]) -> tuple[int, int] | None:
    return (int(options["gi"]), int(options.get("ci", 0))) if "gi" in options else None


_STATEMENTS: dict[str, Callable[[_Section, str, str], None]] = {
    "fail": _fault,
    "hang": _fault,
    "process": _process,
    "event": _event,
}
