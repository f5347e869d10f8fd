"""Reports for the judge, right by default and bent by each test."""

from typing import Any

import msgspec

from detector.model import Cause, Evidence, Incident, Report, SeriesKey, Signal, Verdict

CGROUP = "/tailcause/ab12cd/chat-api-1f2a"
REVISION = "9f3c2b1a5d6e7f8091a2b3c4d5e6f70819203142"
ONSET_S = 1_800_000_000.0

throttled = Evidence("cgroup_throttling", "throttled since", "increase(…)", 5.0, 0.0, "s")


def cause(kind: str = "cpu_throttling", target: str = CGROUP, **other: Any) -> Cause:
    """Return a first cause."""
    made = Cause(kind, target, "title", Verdict.FAULT, 0.8, 0.7, 0.9, 1.0, evidence=(throttled,))
    return msgspec.structs.replace(made, **other)


def report(
    verdict: Verdict = Verdict.FAULT, causes: tuple[Cause, ...] = (), **other: Any
) -> Report:
    """Return a report whose incident began at `ONSET_S`."""
    key = SeriesKey("chat-api-1f2a", "tern-1", "", Signal.E2E)
    incident = Incident(
        "i1", key.service, key.model, ONSET_S, ONSET_S + 6, 2.0, (key,), (), {}, ONSET_S - 60
    )
    made = Report(
        incident, verdict, "P99 went up", 0.1, 0.5, Signal.E2E, 200, 60, 800, (), causes, 0.1, (), (),
        (), (), ONSET_S, ONSET_S + 14,
    )  # fmt: skip
    return msgspec.structs.replace(made, **other)
