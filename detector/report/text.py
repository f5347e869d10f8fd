"""The prose of the report: every sentence is a template here, every value in it is data."""

from dataclasses import dataclass

from detector.model import Cause, Report, Signal, Verdict, WindowVerdict
from detector.report import units


@dataclass(frozen=True)
class VerdictProse:
    """The fixed words that go with a verdict."""

    badge: str
    meaning: str
    causes: str
    steps: str
    no_cause: str


VERDICTS: dict[Verdict, VerdictProse] = {
    Verdict.FAULT: VerdictProse(
        badge="Fault",
        meaning="A fault explains the slow tail.",
        causes="Ranked causes",
        steps="What to do next",
        no_cause="No cause was ranked.",
    ),
    Verdict.DEMAND: VerdictProse(
        badge="Capacity notice",
        meaning="More or longer work explains the slow tail. This is not a fault.",
        causes="What drives the load",
        steps="What to do about capacity",
        no_cause="No driver was ranked.",
    ),
    Verdict.NONE: VerdictProse(
        badge="No fault",
        meaning="Nothing that was measured calls for action.",
        causes="What was considered",
        steps="What to do next",
        no_cause="No cause was ranked.",
    ),
    Verdict.INCONCLUSIVE: VerdictProse(
        badge="Inconclusive",
        meaning="What was measured does not single out a cause.",
        causes="Candidates, none established",
        steps="What would settle it",
        no_cause="No candidate was ranked.",
    ),
}

CAUSE_TAGS: dict[Verdict, str] = {
    Verdict.FAULT: "fault",
    Verdict.DEMAND: "demand",
    Verdict.NONE: "not a fault",
    Verdict.INCONCLUSIVE: "not established",
}

SIGNALS: dict[Signal, str] = {
    Signal.TTFT: "time to first token",
    Signal.TPOT: "time per output token",
    Signal.E2E: "request duration",
}

EVIDENCE = "Evidence"
COUNTER_EVIDENCE = "Counter-evidence"
MISSING = "Missing"
MISSING_OVERALL = "What data was missing"
NOTHING_MISSING = "No source reported missing data."
OPERATIONS = "Where the milliseconds went"
OPERATIONS_NOTE = "own time in the tail, before → since"
NO_OPERATIONS = "The own time of operations is unknown."
CHANGES = "Latest changes"
NO_CHANGES = "No change of version was seen in the telemetry."
REQUESTS = "Slowest requests and ordinary ones"
REQUESTS_LEDGER = "Latency ledger of the slowest requests, beside ordinary ones"
BY_OPERATION, BY_WAIT = "By operation", "By what it waited for"
NO_REQUESTS = "Example requests are unknown."
SLOW = "slow"
ORDINARY = "ordinary"
DECIDED = "How it was decided"
UNEXPLAINED = "Unexplained"
REMAINDER = "outside any operation"
OTHER_PARTS = "other operations"
NO_STEPS = "No step is known for this cause."


WAITS = {
    "cpu": "on the CPU",
    "runqueue": "queued for a CPU",
    "throttled": "throttled by its CPU limit",
    "disk": "disk",
    "network": "network or peer",
    "lock": "lock",
    "fault": "memory: fault or reclaim",
    "sleep": "asleep",
    "gpu_sync": "waiting for the GPU",
    "unexplained": "unexplained",
}


def wait_label(name: str) -> str:
    """Name a wait of the ledger in words; any other name stays as it is."""
    return WAITS.get(name) or units.clean(name)


def requests_heading(*, has_ledger: bool) -> str:
    """Say what the requests' bars are divided by."""
    return REQUESTS_LEDGER if has_ledger else REQUESTS


def requests_column(*, has_ledger: bool) -> str:
    """Head the column of the bars."""
    return BY_WAIT if has_ledger else BY_OPERATION


def p99_sentence(report: Report) -> str:
    """Say what the P99 was before and since, by which factor, and since when."""
    ratio = units.factor(report.p99_before_s, report.p99_since_s)
    return (
        f"P99 of {SIGNALS[report.signal]}: {units.duration(report.p99_before_s)} before → "
        f"{units.duration(report.p99_since_s)}{f' ({ratio})' if ratio else ''} "
        f"since {units.date_and_clock(report.incident.onset_unix_s)}"
    )


def detection(report: Report) -> str:
    """Say how long detection took and whether the incident goes on."""
    incident = report.incident
    took = units.relative(incident.detected_unix_s, incident.onset_unix_s)
    return f"detected {took}, {course(report)}"


def course(report: Report) -> str:
    """Say whether the incident goes on."""
    ended = report.incident.ended_unix_s
    return "open when analysed" if ended is None else f"ended {units.clock(ended)} UTC"


def counts(report: Report) -> str:
    """Give the sample sizes behind the verdict."""
    return (
        f"{units.number(report.requests_slow)} of {units.number(report.requests_since)} requests "
        f"slow since; {units.number(report.baseline_requests)} in the baseline"
    )


def more(count: int, what: str) -> str:
    """Say what a renderer left out: `2 more pieces of evidence`; empty for none."""
    return f"{count} more {what}" if count > 0 else ""


def full_report(report: Report) -> str:
    """Give the command that shows all of it, with the queries behind the evidence."""
    return f"all of it: tailcause explain {units.clean(report.incident.id)} --html FILE"


def close_gap(what: str) -> str:
    """Make a step of missing data."""
    return f"Close the gap: {what}"


def more_requests(report: Report) -> str:
    """Name the step that is left when nothing is missing: a larger sample."""
    return (
        f"More requests: {report.requests_since} were seen since the onset, "
        f"{report.requests_slow} of them slow."
    )


def band(window: WindowVerdict) -> str:
    """Give the band of one window: `band 120 to 310 ms`, with an en dash."""
    lower, upper = units.duration(window.lower_s), units.duration(window.upper_s)
    if lower == upper == units.UNKNOWN:
        return "band unknown"
    if lower.split()[-1] == upper.split()[-1]:
        lower = lower.split()[0]
    return f"band {lower}{units.EN_DASH}{upper}"


def change_supports(cause: Cause, rank: int) -> str:
    """Say that a cause names the change, and that its share of the excess is above nothing."""
    share = units.share_with_band(cause.share, cause.share_low, cause.share_high)
    return f"supports cause {rank}: {share} of the excess"


def change_weighed(cause: Cause, rank: int) -> str:
    """Say that the change was weighed as a cause, and that its share may be nothing."""
    share = units.share_with_band(cause.share, cause.share_low, cause.share_high)
    return f"weighed as cause {rank}, not supported: {share} of the excess"


def change_in_counter_evidence(rank: int) -> str:
    """Say that only the counter-evidence of a cause refers to the change."""
    return f"named in the counter-evidence of cause {rank}"


CHANGE_UNRELATED = "no cause refers to it"
CHANGE_AFTER = "came after the onset; no cause refers to it"


def sigma(window: WindowVerdict) -> str:
    """Give the residual of one window: `5.2`, with its sigma sign."""
    if not units.known(window.residual_sigma):
        return units.UNKNOWN
    return f"{window.residual_sigma:.1f} {SIGMA}".replace("-", units.MINUS)


SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
