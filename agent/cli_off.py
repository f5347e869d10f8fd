"""`tailcause-agent off`."""

import argparse

import msgspec

from agent.config import Config
from agent.control import tell_off
from agent.state import control_dir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace, _: Config) -> int:
    """Detach the probes of every agent of this state folder; 1 when none runs."""
    folder = control_dir()
    answers = list(tell_off(folder))
    if args.json:
        print(msgspec.json.encode({"agents": answers}).decode())
    elif not answers:
        print(f"no agent runs (none has a socket in {folder})")
    else:
        for answer in answers:
            what = ", ".join(answer.detached) or "no probe was on"
            print(f"agent {answer.pid}: detached {what} in {answer.took_s:.2f} s")
    return int(not answers)
