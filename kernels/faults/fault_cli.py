"""`tailcause-workload fault`: inject one real fault, hold it, undo it."""

import argparse
import json
import os
import sys
from pathlib import Path

from kernels.faults.base import Fault, FaultError, FaultOptions
from kernels.faults.registry import FAULTS
from kernels.faults.runner import RunConfig, run_fault
from kernels.supervisor.arguments import duration_s, finish_help, start_logging

MIN_INTENSITY = 1.0
_REQUIRES = {"root": "(needs root)", "gpus": "(fake NVML)"}
"""What a fault needs besides a workload that was started for it, and how its description says so."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `fault`."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the fault; see --list")
    parser.add_argument("--list", action="store_true", help="list the faults and leave")
    parser.add_argument("--json", action="store_true", help="list as JSON")
    parser.add_argument("--state", type=Path, metavar="DIR", help="state folder of the workload")
    parser.add_argument(
        "--intensity", type=float, default=3.0, metavar="X", help="factor on the P99 (3)"
    )
    parser.add_argument(
        "--for", dest="duration", type=duration_s, default=30.0, metavar="30s", help="how long"
    )
    parser.add_argument("--seed", type=int, default=0, help="draws variants, revisions, names")
    parser.add_argument("--variant", metavar="NAME", help="this variant, not one by the seed")
    parser.add_argument("--truth", type=Path, metavar="FILE", help="write the ground truth here")
    parser.add_argument("--url", help="where the workload serves (its port on this machine)")
    parser.add_argument("--replica", metavar="NAME", help="hit this replica alone, such as chat-1")
    parser.add_argument(
        "--gpus", type=Path, metavar="FILE", help="scenario of the fake NVML ($FAKENVML_SCENARIO)"
    )
    finish_help(
        parser,
        [
            "fault --list",
            "fault cpu-quota --state /tmp/chat --intensity 3 --for 30s",
            "fault bad-deploy --state /tmp/chat --variant dropped-index --truth /tmp/truth.json",
            "fault hang --state /tmp/chat --replica chat-1 --for 10s",
        ],
        "0 injected and undone, 1 it broke off or could not be undone, 2 cannot start",
    )


def run(args: argparse.Namespace) -> int:
    """List the faults or inject one."""
    start_logging()
    if args.list:
        _list(as_json=args.json)
        return 0
    fault = _find(args.name)
    if args.state is None:
        raise FaultError("which workload? give its --state DIR")
    if not args.intensity >= MIN_INTENSITY:
        raise FaultError(f"--intensity {args.intensity} must be 1 or more: it multiplies the P99")
    if args.variant and args.variant not in fault.variants:
        known = ", ".join(fault.variants) or "none"
        raise FaultError(f"{fault.name} has no variant {args.variant!r}; it has: {known}")
    options = FaultOptions(
        args.intensity, args.seed, args.variant, args.url, args.replica, args.gpus or _gpus()
    )
    return run_fault(fault, RunConfig(args.state, options, args.duration, args.truth))


def _gpus() -> Path | None:
    """Return the scenario that the library itself would read."""
    named = os.environ.get("FAKENVML_SCENARIO")
    return Path(named) if named else None


def _find(name: str | None) -> Fault:
    for fault in FAULTS:
        if fault.name == name:
            return fault
    known = ", ".join(fault.name for fault in FAULTS)
    raise FaultError(f"no fault {name!r}: choose one of {known}" if name else f"which? {known}")


def _list(*, as_json: bool) -> None:
    for fault in FAULTS:
        row = {"name": fault.name, "kind": str(fault.kind), "description": fault.description}
        if as_json:
            requires = [name for name, words in _REQUIRES.items() if words in fault.description]
            more = {"variants": list(fault.variants), "needs": list(fault.needs)}
            line = json.dumps({**row, **more, "requires": requires})
        else:
            line = f"{fault.name:<16} {fault.kind:<7} {fault.description}"
            line += f" [up {' '.join(fault.needs)}]" if fault.needs else ""
        sys.stdout.write(line + "\n")
