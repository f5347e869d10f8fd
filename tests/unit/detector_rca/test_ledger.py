"""A request's ledger from the ledgers of its spans and of the steps that ran meanwhile."""

import pytest
from msgspec.structs import replace

from agent.telemetry.keys import SERVICE_INSTANCE_ID
from agent.telemetry.model import Attributes, Span, SpanKind
from detector.rca.ledger import StepLedgers, request_ledger, waits_of


def span(name: str, start_s: float, end_s: float, **waits: float) -> Span:
    attributes: Attributes = {f"tailcause.wait.{wait}": seconds for wait, seconds in waits.items()}
    return Span(
        "t",
        name,
        "",
        name,
        SpanKind.INTERNAL,
        int(start_s * 1e9),
        int(end_s * 1e9),
        attributes=attributes,
    )


def test_queue_inherits_what_the_steps_waited_for() -> None:
    """A queued request waits for what the steps wait for, in proportion to the overlap."""
    steps = StepLedgers([span("engine step", 0.0, 0.1, throttled=0.08, cpu=0.02)])
    ledger = request_ledger(span("root", 0.0, 0.05), [span("queue", 0.0, 0.05)], steps)
    assert ledger == pytest.approx({"throttled": 0.04, "cpu": 0.01, "unexplained": 0.0})


def test_other_children_bring_their_own() -> None:
    """A database span carries its own waits, and what nothing covers is unexplained."""
    trace = [span("sql", 0.0, 0.03, disk=0.03)]
    ledger = request_ledger(span("root", 0.0, 0.1), trace, StepLedgers([]))
    assert ledger == pytest.approx({"disk": 0.03, "unexplained": 0.07})


def test_a_request_with_a_ledger_keeps_it() -> None:
    """What the agent measured for the request itself goes first."""
    root = span("root", 0.0, 0.1, lock=0.09)
    steps = StepLedgers([span("engine step", 0.0, 0.1, cpu=0.1)])
    ledger = request_ledger(root, [root, span("decode", 0.0, 0.1)], steps)
    assert ledger == pytest.approx({"lock": 0.09, "unexplained": 0.01})


def test_overlap_never_exceeds_the_wall_time() -> None:
    """Overlapping children are scaled down to the wall time."""
    trace = [span("a", 0.0, 0.1, cpu=0.1), span("b", 0.0, 0.1, disk=0.1)]
    ledger = request_ledger(span("root", 0.0, 0.1), trace, StepLedgers([]))
    assert ledger == pytest.approx({"cpu": 0.05, "disk": 0.05})


def test_nothing_measured_is_no_ledger() -> None:
    """Without any waits there is no ledger, rather than one that is all unexplained."""
    assert request_ledger(span("root", 0.0, 0.1), [span("queue", 0.0, 0.1)], StepLedgers([])) == {}


def test_partial_waits_do_not_count() -> None:
    """A span that was measured in part is not taken for the whole."""
    attributes: Attributes = {"tailcause.wait.cpu": 0.1, "tailcause.wait.partial": True}
    assert waits_of(attributes) == {}


def test_replicas_do_not_explain_each_other() -> None:
    """A request waits for the engine of its own replica, however busy the other one is."""
    steps = StepLedgers(
        [
            replace(span("engine step", 0.0, 0.1, **{wait: 0.1}), resource={SERVICE_INSTANCE_ID: name})
            for name, wait in (("chat-0", "cpu"), ("chat-1", "throttled"))
        ]
    )  # fmt: skip
    root = replace(span("root", 0.0, 0.1), resource={SERVICE_INSTANCE_ID: "chat-1"})
    found = request_ledger(root, [span("decode", 0.0, 0.1)], steps)
    assert found == pytest.approx({"throttled": 0.1, "unexplained": 0.0})


def test_a_request_waits_between_its_phases_too() -> None:
    """From its queue to its last phase whatever the engine did counts, and a look-up before that."""
    steps = StepLedgers([span("engine step", t / 10, (t + 1) / 10, cpu=0.1) for t in range(1, 5)])
    trace = [
        span("sql", 0.0, 0.1, disk=0.1), span("queue", 0.1, 0.2), span("prefill", 0.2, 0.3),
        span("decode", 0.4, 0.5),
    ]  # fmt: skip
    found = request_ledger(span("root", 0.0, 0.5), trace, steps)
    assert found == pytest.approx({"disk": 0.1, "cpu": 0.4, "unexplained": 0.0})


def test_phases_that_the_agent_has_explained_keep_their_ledger() -> None:
    """Where no step is at hand, what the phases carry is used."""
    trace = [span("queue", 0.0, 0.05, throttled=0.05), span("decode", 0.05, 0.1, cpu=0.04)]
    found = request_ledger(span("root", 0.0, 0.1), trace, StepLedgers([]))
    assert found == pytest.approx({"throttled": 0.05, "cpu": 0.04, "unexplained": 0.01})
