"""Reads the truth after the report is out, has it judged, and tells the result."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from detector.cli.demo.conduct import Finding
from detector.cli.demo.counter import ThrottledCounter
from detector.cli.demo.errors import DemoError
from detector.cli.demo.faults import Fault
from detector.cli.demo.judge import Facts, Judgement, Outcome, Truth, judge
from detector.model import Report

_TIMES = "\N{MULTIPLICATION SIGN}"
_CONCLUSIONS: dict[Outcome, str] = {
    Outcome.RIGHT: "RIGHT",
    Outcome.WRONG: "WRONG",
    Outcome.INCONCLUSIVE: "INCONCLUSIVE: the report does not commit itself",
}


class Result(msgspec.Struct, frozen=True):
    """All that `tailcause demo --json` prints."""

    fault: str
    seed: int
    exit_code: int
    elapsed_s: float
    run_dir: str
    html: str | None
    report: Report | None
    truth: tuple[Truth, ...]
    judgement: Judgement


def read_truths(folder: Path) -> tuple[Truth, ...]:
    """Read what every injector wrote, in order of time."""
    try:
        texts = [path.read_bytes() for path in sorted(folder.glob("*.json"))]
        truths = [msgspec.json.decode(text, type=Truth) for text in texts]
    except (OSError, msgspec.DecodeError) as exc:
        raise DemoError(f"the truth in {folder} cannot be read: {exc}") from exc
    return tuple(sorted(truths, key=lambda truth: truth.started_unix_s))


def reveal(
    fault: Fault, finding: Finding, truths: tuple[Truth, ...], counter: ThrottledCounter | None
) -> Judgement:
    """Judge a finding against the truth and the kernel's counter."""
    report = finding.report
    counted_s = None
    if report is not None and counter is not None:
        counted_s = counter.between(report.analysed_from_unix_s, report.analysed_to_unix_s)
    since_unix_s = finding.injecting_since_unix_s
    facts = Facts(fault, finding.cgroup, truths, counted_s, since_unix_s, finding.clients)
    return judge(facts, report)


def tell(judgement: Judgement, truths: Sequence[Truth], report: Report | None) -> str:
    """Put the truth and the judgement into lines for people."""
    lines = ["The truth, revealed:"]
    lines += [f"  {_truth_line(truth, report)}" for truth in truths] or ["  nothing was injected"]
    lines += ["", "Judged:"]
    width = max(len(check.name) for check in judgement.checks)
    for check in judgement.checks:
        mark = "✓" if check.ok else "✗"
        told = (
            check.actual
            if check.actual == check.expected
            else f"{check.actual}   (expected {check.expected})"
        )
        lines.append(f"  {mark} {check.name:<{width}}  {told}")
    conclusion = _CONCLUSIONS[judgement.outcome]
    if judgement.note:
        lines.append(f"  {judgement.note}")
        conclusion += ", by the verdict alone" if judgement.outcome is Outcome.RIGHT else ""
    return "\n".join([*lines, "", conclusion])


def _truth_line(truth: Truth, report: Report | None) -> str:
    strength = (
        f" {_TIMES}{truth.intensity:.1f}" if truth.kind != "decoy" and truth.intensity else ""
    )
    line = f"{truth.kind:<7} {truth.fault}{strength}  {truth.target}"
    if report is None:
        return line
    lag_s = truth.started_unix_s - report.incident.onset_unix_s
    return (
        f"{line}  ({abs(lag_s):.1f} s {'after' if lag_s > 0 else 'before'} the onset in the report)"
    )
