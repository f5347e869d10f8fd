"""What `tailcause demo --list` prints: every fault, what must be made of it, what it needs."""

from collections.abc import Iterable

import msgspec

from detector.cli.demo.faults import Fault, Kind
from detector.cli.demo.judge import expected_cause
from detector.cli.demo.plan import NEEDS_PROBES
from detector.model import Verdict

_HEADING = ("FAULT", "KIND", "VERDICT", "FIRST CAUSE", "NEEDS")
_VERDICTS: dict[Kind, str] = {
    Kind.FAULT: Verdict.FAULT.value, Kind.DEMAND: Verdict.DEMAND.value,
    Kind.DECOY: "no incident", Kind.NONE: "no incident",
}  # fmt: skip


def as_text(faults: Iterable[Fault]) -> str:
    """Return a table for people."""
    rows = [_HEADING, *map(_row, faults)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines) + "\n"


def as_json(faults: Iterable[Fault]) -> str:
    """Return a line a fault; `first_cause` is null where none is judged."""
    described = [
        {**msgspec.to_builtins(fault), "probes": fault.name in NEEDS_PROBES,
         "verdict": _VERDICTS[fault.kind], "first_cause": expected_cause(fault)}
        for fault in faults
    ]  # fmt: skip
    return "".join(msgspec.json.encode(one).decode() + "\n" for one in described)


def _row(fault: Fault) -> tuple[str, ...]:
    unjudged = "not judged" if fault.kind is Kind.FAULT else "-"
    probes = ("probes",) if fault.name in NEEDS_PROBES else ()
    up = (f"up {' '.join(fault.needs)}",) if fault.needs else ()
    wanted = ", ".join((*fault.requires, *probes, *fault.stores, *up)) or "-"
    return (
        fault.name,
        fault.kind.value,
        _VERDICTS[fault.kind],
        expected_cause(fault) or unjudged,
        wanted,
    )
