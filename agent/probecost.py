"""What the probes cost whoever triggers them: events, times the nanoseconds of one.

The kernel's statistics give the time in a probe's programs; of a uprobe they miss the trap into the kernel, which is most
of it, so that is added.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agent.probelist import BY_UPROBE, GPU_API, SPAN
from agent.probes import Spell
from ebpf.errors import EbpfError
from ebpf.trapcost import calibrate

_ASSUMED_NS = 100.0
"""Until the first spell: a program of this size on a current machine."""
_MIN_RUNS = 20
TRAP_NS = 1500.0
"""A uprobe's way into the kernel and back, where it cannot be measured; new kernels take a tenth of it."""

_log = logging.getLogger(__name__)


class Trap:
    """What the traps of a probe's uprobes cost, nanoseconds each; measured when first asked, in a tenth of a second."""

    def __init__(self) -> None:
        self._ns: Mapping[str, float] = {}

    def __call__(self, probe: str) -> float:
        """Return the mean over the probe's events: the span hook is a nop, calls have an entry and a return."""
        if not self._ns:
            self._ns = _measured()
        return self._ns.get(probe, 0.0)


def _measured() -> Mapping[str, float]:
    try:
        cost = calibrate()
    except (EbpfError, OSError) as exc:
        _log.debug("event=trap_not_measured assumed_ns=%g why=%r", TRAP_NS, str(exc))
        return dict.fromkeys(BY_UPROBE, TRAP_NS)
    call_ns = (cost.push_ns + cost.return_ns) / 2
    return {**dict.fromkeys(GPU_API, max(call_ns, 0.0)), SPAN: max(cost.nop_ns, 0.0)}


@dataclass
class CostBook:
    """Cumulative imposed cost by probe."""

    trap_ns: Callable[[str], float]
    ns_per_event: dict[str, float] = field(default_factory=dict)
    imposed_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _events: dict[str, int] = field(default_factory=dict)

    def calibrate(self, spells: Mapping[str, Spell]) -> None:
        """Learn the cost of an event; too few of them leave the last figure standing."""
        for name, spell in spells.items():
            if spell.runs >= _MIN_RUNS:
                self.ns_per_event[name] = spell.time_ns / spell.runs

    def event_ns(self, name: str) -> float:
        """Return the cost of one event, with the trap where there is one."""
        trap_ns = self.trap_ns(name) if name in BY_UPROBE else 0.0
        return self.ns_per_event.get(name, _ASSUMED_NS) + trap_ns

    def charge(self, events: Mapping[str, int]) -> Mapping[str, float]:
        """Add what happened since the last call; return the seconds that it cost, by probe."""
        spent = {}
        for name, count in events.items():
            before = self._events.get(name)
            # a probe counts from 0 again when it was attached anew, and all its past is no cost of now
            new = 0 if before is None else count - before if count >= before else count
            spent[name] = new * self.event_ns(name) / 1e9
            self.imposed_s[name] += spent[name]
        self._events = dict(events)
        return spent
