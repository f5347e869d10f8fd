"""`tailcause demo`: the whole product on real load and a real fault, checked against the truth."""

import argparse
import asyncio
import secrets
import sys
from pathlib import Path

import msgspec

from detector.cli.demo import faults, gpus, listing, preflight
from detector.cli.demo import plan as plans
from detector.cli.demo.errors import DemoError
from detector.cli.demo.options import Options, say
from detector.cli.demo.plan import Plan
from detector.errors import CannotStartError, DetectorError

_SEEDS = 1_000_000
_RATES = (15.0, 200.0)

EPILOG = """\
examples:
  tailcause demo                          a CPU limit set too low, found and proven
  tailcause demo --fault bad-deploy       a revision that is truly slower (works without root)
  tailcause demo --fault surge --seed 7   more traffic is demand, not a fault
  tailcause demo --fault none             nothing happens and nothing must be raised
  tailcause demo --list                   every fault, what must be made of it, what it needs
  tailcause demo --keep                   leave everything up to look at, until Ctrl-C
  tailcause demo --dry-run                show what would be started

exit codes: 0 verdict and evidence are right, 1 they are not or a part failed,
2 cannot start, 3 the report is inconclusive, 128+n stopped by signal n
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("--fault", metavar="NAME", default=plans.DEFAULT,
                        help="what to inject, one of --list (default: %(default)s)")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="list the faults and leave")
    parser.add_argument(
        "--seed", type=int, help="names, onset and strength are drawn from it (default: random)"
    )
    parser.add_argument("--rate", type=float, default=20.0,
                        help="requests per second, 15 to 200 (default: %(default)g)")  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="leave everything up until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--dry-run", action="store_true", help="show the plan, start nothing")
    parser.add_argument("--run-dir", type=Path, metavar="DIR",
                        help="folder for logs and reports (default: a new one in the state folder)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Run the demo; return its exit code."""
    options = Options(
        fault=args.fault,
        seed=secrets.randbelow(_SEEDS) if args.seed is None else args.seed,
        rate=args.rate, keep=args.keep, as_json=args.json, dry_run=args.dry_run, run_dir=args.run_dir,
    )  # fmt: skip
    try:
        return _list(as_json=args.json) if args.list else _dispatch(options)
    except CannotStartError as exc:
        return _fail(options, str(exc), 2)
    except DemoError as exc:
        return _fail(options, str(exc), exc.exit_code)
    except DetectorError as exc:
        return _fail(options, str(exc), 1)
    except BrokenPipeError:
        raise  # whoever read our output has left
    except OSError as exc:
        return _fail(options, f"{exc.strerror or exc}", 2)


def _dispatch(options: Options) -> int:
    if not _RATES[0] <= options.rate <= _RATES[1]:
        raise CannotStartError(
            f"--rate {options.rate:g} is outside {_RATES[0]:g} to {_RATES[1]:g}: "
            "fewer requests a second say too little about a P99"
        )
    preflight.check_packages()
    fault = faults.find(options.fault, faults.ask())
    plan = plans.draw(fault, options.seed, options.rate)
    no_cgroups = preflight.no_cgroups_because()
    no_probes = preflight.no_probes_because() if fault.name in plans.NEEDS_PROBES else None
    preflight.check_fault(fault, no_cgroups, no_probes)
    if options.dry_run:
        return _show_plan(options, plan)
    if no_cgroups:
        say(
            f"no cgroup for the workload, so no CPU limit or throttling to see, no bystander: {no_cgroups}"
        )
    library = gpus.library() if fault.needs_gpus else None
    if busy := preflight.look_at_cpus():
        say(busy)
    from detector.cli.demo import session  # noqa: PLC0415 - needs the packages just looked for

    return asyncio.run(session.hold(options, plan, library))


def _list(*, as_json: bool) -> int:
    known = faults.ask()
    sys.stdout.write(listing.as_json(known) if as_json else listing.as_text(known))
    return 0


def _show_plan(options: Options, plan: Plan) -> int:
    """Print what would be started; when what happens stays hidden."""
    from detector.cli.demo import dryrun  # noqa: PLC0415 - as above

    sys.stdout.write(dryrun.describe(options, plan))
    return 0


def _fail(options: Options, message: str, exit_code: int) -> int:
    say(f"tailcause demo: {message}")
    if options.as_json:
        failure = {
            "fault": options.fault,
            "seed": options.seed,
            "exit_code": exit_code,
            "error": message,
        }
        sys.stdout.write(msgspec.json.encode(failure).decode() + "\n")
    return exit_code
