"""The faults that a demo takes: the workload's own list, and `none`."""

import difflib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from detector.errors import CannotStartError

_LIST = (sys.executable, "-P", "-m", "kernels.cli", "fault", "--list", "--json")
_LIST_S = 30.0
_BLANK = "…"
"""Ends a setting whose value has to be filled in: the address of a store."""


class Kind(StrEnum):
    """What a diagnosis should make of a fault."""

    FAULT = "fault"
    DEMAND = "demand"
    DECOY = "decoy"
    NONE = "none"


class Fault(msgspec.Struct, frozen=True):
    """A fault as `tailcause-workload fault --list --json` describes it.

    `needs` are words that `up` must be started with; `requires` names what else there must be: `root`, or a
    scenario of `gpus` for the fake NVML.
    """

    name: str
    kind: Kind
    description: str = ""
    needs: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()

    @property
    def silent(self) -> bool:
        """Nothing must be raised."""
        return self.kind in {Kind.DECOY, Kind.NONE}

    @property
    def needs_network(self) -> bool:
        """The servers must be reached through a network of their own."""
        return "--network" in self.needs

    @property
    def needs_cgroup(self) -> bool:
        """It acts on cgroups, as all do that need root and no network of the workload's."""
        return "root" in self.requires and not self.needs_network

    @property
    def needs_gpus(self) -> bool:
        """The agent must see GPUs, those of the fake NVML."""
        return "gpus" in self.requires

    @property
    def stores(self) -> tuple[str, ...]:
        """Schemes of the stores that the workload must use, such as `redis`."""
        return tuple(_scheme(word) for word in self.needs if word.endswith(_BLANK))

    def words(self, stores: Mapping[str, str]) -> tuple[str, ...]:
        """Return the words for `up`, with the address of each store by its scheme."""
        return tuple(_filled(word, stores) for word in self.needs)


NONE = Fault("none", Kind.NONE, "nothing but decoys")


def ask(command: Sequence[str] = _LIST) -> tuple[Fault, ...]:
    """Ask the workload for its faults; `none` comes last."""
    try:
        answered = subprocess.run(command, capture_output=True, check=True, timeout=_LIST_S)
        lines = answered.stdout.splitlines()
        listed = [msgspec.json.decode(line, type=Fault) for line in lines if line]
    except subprocess.CalledProcessError as exc:
        said = exc.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise CannotStartError(
            f"`tailcause-workload fault --list` failed: {said or f'exit code {exc.returncode}'}"
        ) from exc
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as exc:
        raise CannotStartError(f"`tailcause-workload fault --list` does not answer: {exc}") from exc
    return (*listed, NONE)


def find(name: str, known: Sequence[Fault]) -> Fault:
    """Return the fault of that name; CannotStartError with the nearest name where there is none."""
    for fault in known:
        if fault.name == name:
            return fault
    near = difflib.get_close_matches(name, [fault.name for fault in known], 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise CannotStartError(f"no fault {name!r}: {hint}`tailcause demo --list` shows them all")


def _scheme(word: str) -> str:
    return word.partition("=")[2].partition("://")[0]


def _filled(word: str, stores: Mapping[str, str]) -> str:
    if not word.endswith(_BLANK):
        return word
    return f"{word.partition('=')[0]}={stores.get(_scheme(word), word.partition('=')[2])}"
