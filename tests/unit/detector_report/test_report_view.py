"""What every renderer shows."""

import math

import msgspec
import pytest

from detector.model import (
    Cause,
    Evidence,
    OperationShare,
    Report,
    SeriesKey,
    Signal,
    SlowRequest,
    Verdict,
)
from detector.report import text, view


def _with_cause(report: Report, **changed: object) -> view.CauseView:
    cause = msgspec.structs.replace(report.causes[0], **changed)
    return view.build(msgspec.structs.replace(report, causes=(cause,))).causes[0]


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_its_prose(report: Report, verdict: Verdict) -> None:
    """A report of any verdict can be said in words."""
    shown = view.build(msgspec.structs.replace(report, verdict=verdict))
    assert shown.prose is text.VERDICTS[verdict]


def test_demand_is_not_called_a_fault(report: Report) -> None:
    """More work is a capacity notice and says that it is not a fault."""
    shown = view.build(msgspec.structs.replace(report, verdict=Verdict.DEMAND))
    assert (
        shown.prose.badge == "Capacity notice",
        "not a fault" in shown.prose.meaning,
    ) == (True, True)


def test_inconclusive_lists_what_would_settle_it(report: Report) -> None:
    """Gaps come first, then the candidates' steps, then the sample size."""
    cause = msgspec.structs.replace(report.causes[0], missing=("no agent",))
    shown = view.build(
        msgspec.structs.replace(
            report, verdict=Verdict.INCONCLUSIVE, causes=(cause,), missing=("no spans",)
        )
    )
    assert tuple(step.text for step in shown.steps) == (
        "Close the gap: no spans",
        "Close the gap: no agent",
        "Raise the limit",
        "More requests: 120 were seen since the onset, 36 of them slow.",
    )


def test_inconclusive_without_any_data_still_says_what_would_settle_it(report: Report) -> None:
    """There is always a next step."""
    bare = msgspec.structs.replace(report, verdict=Verdict.INCONCLUSIVE, causes=(), missing=())
    assert [step.text for step in view.build(bare).steps] == [
        "More requests: 120 were seen since the onset, 36 of them slow."
    ]


def test_the_same_step_of_two_causes_is_said_once(report: Report) -> None:
    """It is numbered with the higher-ranked cause."""
    twice = msgspec.structs.replace(report, causes=report.causes * 2)
    assert (view.Step("Raise the limit", 1),) == view.build(twice).steps


def test_a_missing_value_reads_unknown(report: Report) -> None:
    """An absent number is never a zero."""
    fact = _with_cause(report, evidence=(Evidence("s", "Throttled", "q", unit="s"),)).evidence[0]
    assert (fact.value, fact.baseline) == ("unknown", "unknown")


def test_a_statement_without_numbers_stays_without(report: Report) -> None:
    """A plain statement is not decorated with unknown values."""
    fact = _with_cause(report, evidence=(Evidence("s", "First seen", "q"),)).evidence[0]
    assert (fact.value, fact.baseline) == ("", "")


def test_names_that_are_empty_read_unknown(report: Report) -> None:
    """No name is made up."""
    cause = _with_cause(report, target="", title="", kind="")
    assert (cause.target, cause.title) == ("unknown", "unknown")


def test_only_a_verdict_that_differs_is_tagged(report: Report) -> None:
    """The report's own verdict is not repeated on each cause."""
    tags = [_with_cause(report, verdict=v).tag for v in (Verdict.FAULT, Verdict.DEMAND)]
    assert tags == ["", "demand"]


def test_operations_come_by_excess(report: Report) -> None:
    """The largest excess is on top, whatever order it came in."""
    made = tuple(
        OperationShare(n, 0.1, 0.1 + e, e) for n, e in (("a", 0.01), ("b", 0.5), ("c", -0.2))
    )
    shown = view.build(msgspec.structs.replace(report, operations=made))
    assert [row.name for row in shown.operations] == ["b", "a", "c"]


def _request(operations: dict[str, float], duration_s: float) -> SlowRequest:
    return SlowRequest("t", 0.0, duration_s, "", operations)


def test_parts_of_a_request_add_up_to_its_duration(report: Report) -> None:
    """Small operations are folded and the rest is named, so that no time is lost."""
    operations = {f"op{index}": 0.1 * (index + 1) for index in range(8)}
    shown = view.build(msgspec.structs.replace(report, slowest=(_request(operations, 4.0),)))
    parts = shown.slowest[0].parts
    assert (
        parts[-2].label,
        parts[-1].label,
        math.isclose(sum(part.seconds for part in parts), 4.0),
    ) == (text.OTHER_PARTS, text.REMAINDER, True)


def test_an_operation_has_one_colour_in_all_requests(report: Report) -> None:
    """Slow and ordinary requests can be compared by colour."""
    changed = msgspec.structs.replace(
        report,
        slowest=(_request({"decode": 0.2, "queue": 0.8}, 1.0),),
        ordinary=(_request({"decode": 0.2}, 0.2),),
    )
    shown = view.build(changed)
    slots = [
        {p.label: p.slot for p in r.parts}["decode"] for r in (*shown.slowest, *shown.ordinary)
    ]
    assert slots[0] == slots[1]


def test_the_series_of_the_signal_is_shown(report: Report) -> None:
    """All replicas of the judged signal are preferred to one replica and to other signals."""
    windows = report.incident.windows
    others = (
        SeriesKey("chat", "tiny", "chat-0", Signal.TTFT),
        SeriesKey("chat", "tiny", "", Signal.E2E),
    )
    copies = tuple(msgspec.structs.replace(w, key=key) for key in others for w in windows)
    incident = msgspec.structs.replace(report.incident, windows=(*copies, *windows))
    shown = view.build(msgspec.structs.replace(report, incident=incident))
    assert (windows, "time to first token, all replicas") == (shown.windows.all, shown.windows.name)


def test_shares_out_of_range_stay_within_the_bar(report: Report) -> None:
    """A bar can be neither negative nor longer than the whole; the text tells the number."""
    share = _with_cause(report, share=1.2, share_low=-0.1, share_high=math.nan).share
    assert (share.value, share.low, share.high) == (1.0, 0.0, 1.0)


def test_causes_keep_the_engine_s_order(report: Report) -> None:
    """Renderers never re-rank."""
    weak: Cause = msgspec.structs.replace(report.causes[0], title="weak", share=0.9)
    shown = view.build(msgspec.structs.replace(report, causes=(report.causes[0], weak)))
    assert [(c.rank, c.title) for c in shown.causes] == [(1, "CPU quota"), (2, "weak")]
