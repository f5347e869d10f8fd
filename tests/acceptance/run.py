"""Runs the demo for every fault several times with different seeds and prints the table.

    python tests/acceptance/run.py [--faults cpu-quota,none] [--repeats 5] [--first-seed 101] [--json FILE]

Exit code 0 when every run came out right, 1 otherwise.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

FAULTS = ("cpu-quota", "bad-deploy", "surge", "noisy-neighbour", "none")


@dataclass(frozen=True)
class Run:
    """One demo run: what the truth was, what the report said, and how it was judged."""

    fault: str
    seed: int
    right: bool
    verdict: str
    first_cause: str
    share: float
    seconds: float
    wrong: tuple[str, ...]


def run_demo(fault: str, seed: int, folder: Path) -> Run:
    """Run the demo once and read its JSON."""
    began = time.monotonic()
    command = [
        sys.executable, "-m", "detector.cli.main", "demo", "--fault", fault, "--seed", str(seed), "--json",
        "--run-dir", str(folder / f"{fault}-{seed}"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    seconds = time.monotonic() - began
    try:
        answer = json.loads(done.stdout)
        checks = answer["judgement"]["checks"]
    except (json.JSONDecodeError, KeyError):  # it could not start, or broke
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return Run(fault, seed, False, "-", "-", 0.0, seconds, (f"exit {done.returncode}: {last}",))
    report = answer.get("report") or {}
    causes = report.get("causes") or [{}]
    wrong = tuple(
        f"{check['name']}: {check['actual']} (expected {check['expected']})"
        for check in checks
        if not check["ok"]
    )
    return Run(
        fault, seed, done.returncode == 0, report.get("verdict", "no incident"), causes[0].get("kind", "-"),
        causes[0].get("share", 0.0), seconds, wrong,
    )  # fmt: skip


def table(runs: list[Run]) -> str:
    """Render one line a fault, then one line a run that was wrong."""
    lines = ["| fault | right | first cause (share) | seconds |", "|---|---|---|---|"]
    for fault in dict.fromkeys(run.fault for run in runs):
        group = [run for run in runs if run.fault == fault]
        causes = ", ".join(f"{run.first_cause} {run.share * 100:.0f} %" for run in group)
        seconds = max(run.seconds for run in group)
        right = sum(run.right for run in group)
        lines.append(f"| {fault} | {right} of {len(group)} | {causes} | ≤ {seconds:.0f} |")
    lines += [
        f"wrong: {run.fault} seed {run.seed}: {'; '.join(run.wrong)}"
        for run in runs
        if not run.right
    ]
    return "\n".join(lines)


def main() -> int:
    """Run them all."""
    parser = argparse.ArgumentParser(
        description="Every fault of the demo, several times with different seeds."
    )
    parser.add_argument("--faults", default=",".join(FAULTS), help="comma-separated (default: all)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=101)
    parser.add_argument("--folder", type=Path, help="where the runs and their reports are kept")
    parser.add_argument("--json", type=Path, help="write all runs to this file")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="tailcause-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"reports: {folder}")
    runs: list[Run] = []
    seeds = range(options.first_seed, options.first_seed + options.repeats)
    for fault, seed in ((fault, seed) for seed in seeds for fault in options.faults.split(",")):
        run = run_demo(fault, seed, folder)
        runs.append(run)
        state = "right" if run.right else f"WRONG ({'; '.join(run.wrong)})"
        print(
            f"{fault} seed {seed}: {state}: {run.verdict}, {run.first_cause} {run.share:.0%}, {run.seconds:.0f} s",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps([asdict(run) for run in runs], indent=1))
    print(table(runs))
    return 0 if all(run.right for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
