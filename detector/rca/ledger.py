"""The latency ledger of a request: what its wall time was spent waiting for.

Spans carry `tailcause.wait.*` in seconds where the agent could measure them, and requests what their steps waited for
(`agent.telemetry.steps` has the rules). A request that came without, because no one agent saw it and its steps, is joined
here by the same rules. What is left of the wall time is `unexplained`, and said so.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from agent.telemetry import keys
from agent.telemetry.model import Attributes, Span
from agent.telemetry.steps import NOTHING, PHASES, Parts, Steps, Stretch, add, request_parts
from detector.rca.requests import text

UNEXPLAINED = keys.WAIT_UNEXPLAINED.removeprefix(keys.WAIT_PREFIX)

Waits = Mapping[str, float]


def waits_of(attributes: Attributes) -> dict[str, float]:
    """Return the measured waits of a span in seconds; empty when it has none or only part of them."""
    if attributes.get(keys.WAIT_PARTIAL) in {True, "true"}:
        return {}
    found = {part: attributes.get(keys.WAIT_PREFIX + part) for part in keys.WAIT_PARTS}
    return {part: float(s) for part, s in found.items() if isinstance(s, int | float)}


class StepLedgers:
    """The ledgers of one service's engine steps, by replica: a request waits for the engine of its own."""

    def __init__(self, steps: Iterable[Span]) -> None:
        by_replica: dict[str, list[Stretch]] = defaultdict(list)
        for span in steps:
            if waits_of(span.attributes):
                by_replica[_replica(span)].append(_stretch(span))
        self._engines: dict[str, Steps] = {}
        for replica, found in by_replica.items():
            engine = self._engines[replica] = Steps(max_steps=len(found))
            for step in sorted(found, key=lambda step: step[0]):
                engine.add(*step)

    def of(self, request: Span) -> Steps | None:
        """Return the steps of the engine that served a request; None where none was measured."""
        return self._engines.get(_replica(request))


def request_ledger(root: Span, trace: Sequence[Span], steps: StepLedgers) -> dict[str, float]:
    """Return seconds by wait, `unexplained` included, that add up to the request's wall time; empty without data."""
    sums = waits_of(root.attributes) or _joined(root, trace, steps.of(root))
    if not sums:
        return {}
    named = sum(sums.values())
    if named > root.duration_s > 0:  # overlapping children
        return {wait: seconds * root.duration_s / named for wait, seconds in sums.items()}
    return {**sums, UNEXPLAINED: root.duration_s - named}


def _joined(root: Span, trace: Sequence[Span], engine: Steps | None) -> dict[str, float]:
    below = [span for span in trace if span.span_id != root.span_id]
    phases = [span for span in below if span.name in PHASES]
    if engine is not None and phases:
        first_ns = min(span.start_unix_ns for span in phases)
        last_ns = max(span.end_unix_ns for span in phases)
        others = [_stretch(span) for span in below if span.name not in PHASES]
        parts = request_parts(engine, first_ns, last_ns, others)
    else:  # what its children say of themselves is all that is known
        parts = NOTHING
        for span in below:
            parts = add(parts, _parts(waits_of(span.attributes)))
    return {part: s for part, s in zip(keys.WAIT_PARTS, parts, strict=True) if s > 0}


def _stretch(span: Span) -> Stretch:
    return span.start_unix_ns, span.end_unix_ns, _parts(waits_of(span.attributes))


def _parts(waits: Waits) -> Parts:
    return [waits.get(part, 0.0) for part in keys.WAIT_PARTS]


def _replica(span: Span) -> str:
    return text(span.resource, keys.SERVICE_INSTANCE_ID)
