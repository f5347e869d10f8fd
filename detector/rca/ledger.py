"""The latency ledger of a request: what its wall time was spent waiting for.

Spans carry `tailcause.wait.*` in seconds where the agent could measure them. A request has little of its own: while it
is queued, prefilled or decoded, the engine's steps do the work, so it inherits the ledger of every step that ran
meanwhile, in proportion to the overlap: a queued request waits for what the steps wait for. What is left of the wall
time is `unexplained`, and said so.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.telemetry.model import Attributes, Span

PREFIX = "tailcause.wait."
UNEXPLAINED = "unexplained"
_NOT_A_WAIT = frozenset({"scope", "partial", "thread", UNEXPLAINED})
INHERITING = frozenset({"queue", "prefill", "decode"})

Waits = Mapping[str, float]


def waits_of(attributes: Attributes) -> dict[str, float]:
    """Return the measured waits of a span in seconds; empty when it has none or only part of them."""
    if attributes.get(PREFIX + "partial") in {True, "true"}:
        return {}
    return {
        key.removeprefix(PREFIX): float(value)
        for key, value in attributes.items()
        if key.startswith(PREFIX)
        and key.removeprefix(PREFIX) not in _NOT_A_WAIT
        and isinstance(value, int | float)
    }


@dataclass(frozen=True)
class _Stretch:
    start_s: float
    end_s: float
    waits: Waits


class StepLedgers:
    """The ledgers of one service's engine steps, looked up by time."""

    def __init__(self, steps: Iterable[Span]) -> None:
        found = [
            _Stretch(span.start_unix_ns / 1e9, span.end_unix_ns / 1e9, waits)
            for span in steps
            if (waits := waits_of(span.attributes))
        ]
        self._stretches = sorted(found, key=lambda stretch: stretch.start_s)
        self._starts = [stretch.start_s for stretch in self._stretches]
        self._longest_s = max((s.end_s - s.start_s for s in found), default=0.0)

    def __bool__(self) -> bool:
        return bool(self._stretches)

    def between(self, start_s: float, end_s: float) -> dict[str, float]:
        """Return what the steps waited for within an interval, seconds by wait."""
        sums: dict[str, float] = defaultdict(float)
        first = bisect_right(self._starts, start_s - self._longest_s)
        for stretch in self._stretches[first:]:
            if stretch.start_s >= end_s:
                break
            overlap = min(stretch.end_s, end_s) - max(stretch.start_s, start_s)
            if overlap > 0:
                share = overlap / (stretch.end_s - stretch.start_s)
                for wait, seconds in stretch.waits.items():
                    sums[wait] += seconds * share
        return dict(sums)


def request_ledger(root: Span, trace: Sequence[Span], steps: StepLedgers) -> dict[str, float]:
    """Return seconds by wait, `unexplained` included, that add up to the request's wall time; empty without data."""
    sums: dict[str, float] = defaultdict(float, waits_of(root.attributes))
    if not sums:
        for span in trace:
            if span.span_id == root.span_id:
                continue
            inherited = span.name in INHERITING
            found = (
                steps.between(span.start_unix_ns / 1e9, span.end_unix_ns / 1e9)
                if inherited
                else waits_of(span.attributes)
            )
            for wait, seconds in found.items():
                sums[wait] += seconds
    if not sums:
        return {}
    named = sum(sums.values())
    if named > root.duration_s > 0:  # overlapping children
        return {wait: seconds * root.duration_s / named for wait, seconds in sums.items()}
    return {**sums, UNEXPLAINED: root.duration_s - named}
