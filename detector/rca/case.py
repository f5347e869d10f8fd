"""What an evidence source may look at: one incident, cut into before and since."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from agent.telemetry import keys
from detector.errors import AnalysisError
from detector.model import Snapshot
from detector.rca.counters import Counters
from detector.rca.ledger import StepLedgers, request_ledger
from detector.rca.requests import (
    STEP_NAME,
    Request,
    Step,
    read_requests,
    read_steps,
    text,
)
from detector.rca.steps import StepModel

MIN_REQUESTS = 20
"""Fewer requests on either side carry no statement about a tail."""


@dataclass(frozen=True)
class Interval:
    """A stretch of time, seconds since the epoch."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Length in seconds, at least a nanosecond so that rates stay finite."""
        return max(self.end_s - self.start_s, 1e-9)

    def holds(self, time_s: float) -> bool:
        """Tell whether an instant lies in it (start included)."""
        return self.start_s <= time_s < self.end_s


@dataclass(frozen=True)
class Case:
    """An incident with its telemetry: requests that ended before its onset and those since."""

    snapshot: Snapshot
    before: Interval
    since: Interval
    counters: Counters
    requests_before: tuple[Request, ...]
    requests_since: tuple[Request, ...]
    failed_before: int
    failed_since: int
    steps_before: tuple[Step, ...]
    steps_since: tuple[Step, ...]

    @cached_property
    def cgroup(self) -> str:
        """The cgroup that served most requests; empty when spans carry none."""
        seen = Counter(request.cgroup for request in self.requests_since if request.cgroup)
        return seen.most_common(1)[0][0] if seen else ""

    @cached_property
    def host(self) -> str:
        """The node that served most requests from that cgroup; empty when spans carry none."""
        seen = Counter(r.host for r in self.requests_since if r.host and r.cgroup == self.cgroup)
        return seen.most_common(1)[0][0] if seen else ""

    def here(self, labels: dict[str, str]) -> dict[str, str]:
        """Add the node to labels: the same cgroup path may exist on others."""
        return {**labels, keys.HOST_NAME: self.host} if self.host else labels

    @cached_property
    def step_model(self) -> StepModel | None:
        """Expected duration of a step given its work, learned before the onset; None without steps."""
        return StepModel.learn(self.steps_before)

    @cached_property
    def _step_ledgers(self) -> StepLedgers:
        service = self.snapshot.incident.service
        return StepLedgers(
            span
            for span in self.snapshot.spans
            if span.name == STEP_NAME and text(span.resource, keys.SERVICE_NAME) == service
        )

    def ledger(self, request: Request) -> dict[str, float]:
        """Return the latency ledger of a request, seconds by wait; empty when nothing was measured."""
        trace = [span for span in self.snapshot.spans if span.trace_id == request.trace_id]
        root = next(span for span in trace if span.span_id == request.span_id)
        return request_ledger(root, trace, self._step_ledgers)

    def usual(self, step_s: float) -> Interval:
        """Return `before` up to one window and one reading ahead of the onset, for counters read every `step_s`.

        The onset is the edge of a window, so what set it off came up to a window earlier, and a reading shows it up to
        `step_s` later: readings in between are of the new state. At most the later half of `before` is left out.
        """
        before = self.before
        guarded_s = before.end_s - self.snapshot.incident.window_s - step_s
        return Interval(before.start_s, max(guarded_s, (before.start_s + before.end_s) / 2))

    @cached_property
    def busy_before(self) -> float:
        """Part of wall time (0..1) before the onset in which requests were in flight."""
        return _busy(self.requests_before, self.before)

    @cached_property
    def busy_since(self) -> float:
        """Part of wall time (0..1) since the onset in which requests were in flight."""
        return _busy(self.requests_since, self.since)

    @cached_property
    def seed(self) -> int:
        """A seed that depends on nothing but the incident, so that a replay draws the same."""
        return int.from_bytes(self.snapshot.incident.id.encode()[-8:].rjust(8, b"\0"), "big")

    def rng(self) -> np.random.Generator:
        """Return a fresh generator seeded by the incident."""
        return np.random.default_rng(self.seed)


def open_case(snapshot: Snapshot) -> Case:
    """Cut a snapshot into before and since; raises AnalysisError when either side is too thin."""
    incident = snapshot.incident
    before = Interval(incident.baseline_start_unix_s, incident.onset_unix_s)
    since = Interval(incident.onset_unix_s, snapshot.end_unix_s)
    requests = read_requests(snapshot.spans, incident.service, incident.model)
    steps = read_steps(snapshot.spans, incident.service)
    old = [r for r in requests if before.holds(r.end_s)]
    new = [r for r in requests if since.holds(r.end_s)]
    case = Case(
        snapshot=snapshot,
        before=before,
        since=since,
        counters=Counters(snapshot.points),
        requests_before=tuple(r for r in old if not r.failed),
        requests_since=tuple(r for r in new if not r.failed),
        failed_before=sum(r.failed for r in old),
        failed_since=sum(r.failed for r in new),
        steps_before=tuple(s for s in steps if before.holds(s.end_s)),
        steps_since=tuple(s for s in steps if since.holds(s.end_s)),
    )
    for side, found in (("before", case.requests_before), ("since", case.requests_since)):
        if len(found) < MIN_REQUESTS:
            raise AnalysisError(
                f"only {len(found)} requests {side} the onset (at least {MIN_REQUESTS} are needed): "
                "the snapshot is too short to say anything"
            )
    return case


def _busy(requests: tuple[Request, ...], within: Interval) -> float:
    covered, reached = 0.0, within.start_s
    for request in sorted(requests, key=lambda request: request.start_s):
        start = max(request.start_s, reached)
        end = min(request.end_s, within.end_s)
        if end > start:
            covered += end - start
            reached = end
    return min(covered / within.length_s, 1.0)
