"""A judge that cannot say no is worth nothing: every check is seen to fail."""

import msgspec
import pytest

from detector.cli.demo.faults import NONE, Fault
from detector.cli.demo.judge import ClientsView, Facts, Judgement, Outcome, Truth, judge
from detector.cli.demo.outcome import tell
from detector.model import Evidence, Report, Verdict
from tests.support.demo_faults import (
    BAD_DEPLOY,
    COLD_START,
    CPU_QUOTA,
    LONG_PROMPTS,
    NEIGHBOUR,
    NET_LOSS,
    SLOW_DISK,
    SURGE,
)
from tests.support.demo_reports import CGROUP, ONSET_S, REVISION, cause, report, throttled

QUOTA = Truth("cpu-quota", "fault", CGROUP, ONSET_S + 0.5, 4.0)
DECOY = Truth("decoy-deploy", "decoy", "aaaaaaaaaaaa", ONSET_S - 9)
DEPLOY = Truth("bad-deploy", "fault", "chat", ONSET_S, 4.0, None, {"revision": REVISION})
MORE = Truth("surge", "demand", "chat", ONSET_S, 4.0)


def quota(made: Report | None, counted_s: float | None = 5.2) -> Judgement:
    """Judge a report on the cpu-quota fault."""
    return judge(Facts(CPU_QUOTA, CGROUP, (DECOY, QUOTA), counted_s), made)


def failed(judgement: Judgement) -> list[str]:
    """Return the names of the checks that failed."""
    return [check.name for check in judgement.checks if not check.ok]


def test_right_verdict_cgroup_and_seconds_are_right() -> None:
    """The throttled cgroup with about the kernel's seconds is what was injected."""
    judgement = quota(report(causes=(cause(),)))

    assert (judgement.outcome, judgement.exit_code) == (Outcome.RIGHT, 0)


@pytest.mark.parametrize("counted_s", [4.5, 5.6])
def test_throttled_seconds_more_than_a_tenth_off_are_wrong(counted_s: float) -> None:
    """Evidence counts as much as the verdict."""
    judgement = quota(report(causes=(cause(),)), counted_s)

    assert (failed(judgement), judgement.exit_code) == (["throttled time"], 1)


@pytest.mark.parametrize("counted_s", [None, 0.0])
def test_throttled_seconds_that_nobody_counted_are_not_right(counted_s: float | None) -> None:
    """Without the kernel's count there is nothing to agree with."""
    assert failed(quota(report(causes=(cause(),)), counted_s)) == ["throttled time"]


@pytest.mark.parametrize(
    "evidence",
    [
        (),
        (msgspec.structs.replace(throttled, value=None),),
        (msgspec.structs.replace(throttled, unit="1"),),
        (msgspec.structs.replace(throttled, source="psi"),),
    ],
)
def test_missing_throttled_seconds_are_wrong(evidence: tuple[Evidence, ...]) -> None:
    """Only a number of seconds from the cgroup's counter is that evidence."""
    assert failed(quota(report(causes=(cause(evidence=evidence),)))) == ["throttled time"]


def test_the_bystanders_cgroup_is_wrong() -> None:
    """A throttled neighbour is not the cause."""
    made = report(causes=(cause(target="/tailcause/ab12cd/batch-01"), cause()))

    assert failed(quota(made)) == ["throttled cgroup"]


def test_blaming_the_decoy_deploy_is_wrong() -> None:
    """The cause must come first, not second."""
    made = report(causes=(cause("deploy", "aaaaaaaaaaaa", evidence=()), cause()))

    assert failed(quota(made)) == ["first cause", "throttled cgroup", "throttled time"]


def test_a_report_without_causes_is_wrong() -> None:
    """A verdict alone does not do."""
    assert failed(quota(report())) == ["first cause", "throttled cgroup", "throttled time"]


def test_demand_for_a_fault_is_wrong() -> None:
    """A right first cause under a wrong verdict is not right."""
    assert failed(quota(report(Verdict.DEMAND, (cause(),)))) == ["verdict"]


def test_an_incident_before_the_fault_is_wrong() -> None:
    """A false alarm that guesses right is still a false alarm."""
    early = report(causes=(cause(),))
    incident = msgspec.structs.replace(early.incident, onset_unix_s=ONSET_S - 10)

    assert failed(quota(msgspec.structs.replace(early, incident=incident))) == ["onset"]


@pytest.mark.parametrize(("since_s", "checks"), [(-6.0, []), (-3.0, ["onset"])])
def test_a_deploy_may_be_felt_while_it_warms_up(since_s: float, checks: list[str]) -> None:
    """What counts is when its injection began, not when the new revision took its first request."""
    truth = msgspec.structs.replace(DEPLOY, started_unix_s=ONSET_S + 8)
    facts = Facts(BAD_DEPLOY, None, (truth,), None, ONSET_S + 8 + since_s)

    assert failed(judge(facts, report(causes=(cause("deploy", REVISION),)))) == checks


def test_no_incident_after_a_fault_is_wrong() -> None:
    """Silence is right only when nothing happened."""
    assert (failed(quota(None)), quota(None).exit_code) == (["incident"], 1)


def test_an_incident_without_a_fault_is_wrong_even_if_it_is_inconclusive() -> None:
    """The decoys alone must raise nothing."""
    facts = Facts(CPU_QUOTA, CGROUP, (DECOY,), 5.0)
    judgement = judge(facts, report(Verdict.INCONCLUSIVE, (cause(),)))

    assert (failed(judgement), judgement.outcome) == (["onset"], Outcome.WRONG)


def test_an_inconclusive_verdict_has_its_own_exit_code() -> None:
    """Not to know is told apart from being wrong."""
    judgement = quota(report(Verdict.INCONCLUSIVE, (cause(),)))

    assert (judgement.outcome, judgement.exit_code) == (Outcome.INCONCLUSIVE, 3)


@pytest.mark.parametrize(
    ("target", "evidence"),
    [
        (REVISION, ()),
        (REVISION[:12], ()),
        ("chat", (Evidence("changes", f"requests on {REVISION[:8]} are slower", "q", 1.0),)),
    ],
)
def test_the_revision_may_be_named_in_target_or_evidence(
    target: str, evidence: tuple[Evidence, ...]
) -> None:
    """The bad revision is what matters, whole or short."""
    made = report(causes=(cause("deploy", target, evidence=evidence),))

    assert Outcome.RIGHT is judge(Facts(BAD_DEPLOY, None, (DEPLOY,)), made).outcome


def test_another_revision_is_wrong() -> None:
    """To blame some deploy is not enough."""
    made = report(causes=(cause("deploy", "0" * 40, evidence=()),))

    assert failed(judge(Facts(BAD_DEPLOY, None, (DEPLOY,)), made)) == ["revision"]


def test_another_kind_of_cause_is_wrong_for_a_deploy() -> None:
    """The revision in passing does not make it a deploy."""
    made = report(causes=(cause("cpu_pressure", REVISION),))

    assert failed(judge(Facts(BAD_DEPLOY, None, (DEPLOY,)), made)) == ["first cause"]


@pytest.mark.parametrize("fault", [SURGE, LONG_PROMPTS])
@pytest.mark.parametrize(
    ("verdict", "outcome"), [(Verdict.DEMAND, Outcome.RIGHT), (Verdict.FAULT, Outcome.WRONG)]
)
def test_more_work_is_demand(fault: Fault, verdict: Verdict, outcome: Outcome) -> None:
    """More or longer requests are nobody's fault."""
    truth = msgspec.structs.replace(MORE, fault=fault.name)
    judgement = judge(Facts(fault, None, (truth,)), report(verdict))

    assert (judgement.outcome, judgement.note) == (outcome, "")


def unproven(verdict: Verdict, onset_s: float = ONSET_S) -> Judgement:
    """Judge a report on a fault that no kind of evidence knows, and that names something else."""
    truth = Truth("net-loss", "fault", "chat", onset_s, 4.0)
    return judge(Facts(NET_LOSS, CGROUP, (truth,)), report(verdict, (cause("deploy", REVISION),)))


def test_without_a_kind_of_evidence_the_verdict_alone_is_judged() -> None:
    """It says so, with what the report names, and nobody reads a proof into it."""
    judgement = unproven(Verdict.FAULT)

    assert [check.name for check in judgement.checks] == ["onset", "verdict"]
    assert (judgement.outcome, judgement.exit_code) == (Outcome.RIGHT, 0)
    assert judgement.note.startswith(
        "no evidence kind for net-loss yet: verdict judged, cause not (the report puts first: "
    )


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        (Verdict.FAULT, "RIGHT, by the verdict alone"),
        (Verdict.DEMAND, "WRONG"),
        (Verdict.INCONCLUSIVE, "INCONCLUSIVE: the report does not commit itself"),
    ],
)
def test_people_are_told_that_a_cause_was_not_judged(verdict: Verdict, told: str) -> None:
    """Before the conclusion, which claims no more than that."""
    lines = tell(unproven(verdict), (), None).splitlines()

    assert lines[-1] == told
    assert "no evidence kind for net-loss yet" in lines[-3]


@pytest.mark.parametrize(
    ("verdict", "onset_s", "outcome"),
    [
        (Verdict.DEMAND, ONSET_S, Outcome.WRONG),
        (Verdict.INCONCLUSIVE, ONSET_S, Outcome.INCONCLUSIVE),
        (Verdict.FAULT, ONSET_S + 10, Outcome.WRONG),
        (Verdict.INCONCLUSIVE, ONSET_S + 10, Outcome.WRONG),
    ],
)
def test_the_verdict_alone_can_be_wrong(verdict: Verdict, onset_s: float, outcome: Outcome) -> None:
    """So can the onset: an incident before the fault is a false alarm."""
    assert unproven(verdict, onset_s).outcome is outcome


def test_no_incident_after_an_unproven_fault_is_wrong() -> None:
    """A fault that nobody noticed was not found."""
    truth = Truth("net-loss", "fault", "chat", ONSET_S, 4.0)

    assert failed(judge(Facts(NET_LOSS, CGROUP, (truth,)), None)) == ["incident"]


@pytest.mark.parametrize(
    ("since_s", "told"),
    [
        (1.7, "none (P99 as its clients saw it: 0.1 s before, 1.7 s since)"),
        (None, "none (P99 as its clients saw it: 0.1 s before, nobody answered since)"),
    ],
)
def test_a_fault_that_was_missed_is_told_apart_from_one_that_was_not_felt(
    since_s: float | None, told: str
) -> None:
    """The clients measured for themselves."""
    truth = Truth("net-loss", "fault", "chat", ONSET_S, 4.0)
    facts = Facts(NET_LOSS, CGROUP, (truth,), clients=ClientsView(0.1, since_s))

    assert [check.actual for check in judge(facts, None).checks] == [told]


@pytest.mark.parametrize(
    ("kind", "target", "checks"),
    [
        ("io_pressure", CGROUP, []),
        ("memory_pressure", CGROUP, ["first cause"]),
        ("io_pressure", "/tailcause/ab12cd/batch-01", ["cgroup"]),
    ],
)
def test_where_there_is_evidence_the_cause_must_come_first(
    kind: str, target: str, checks: list[str]
) -> None:
    """Of the right kind, and for the service's own cgroup."""
    truth = Truth("slow-disk", "fault", "chat", ONSET_S, 4.0)
    judgement = judge(Facts(SLOW_DISK, CGROUP, (truth,)), report(causes=(cause(kind, target),)))

    assert (failed(judgement), judgement.note) == (checks, "")


def test_a_cgroup_that_nobody_knows_is_not_the_right_one() -> None:
    """Not even for a report that names none."""
    truth = Truth("slow-disk", "fault", "chat", ONSET_S, 4.0)
    made = report(causes=(cause("io_pressure", "unknown"),))

    assert failed(judge(Facts(SLOW_DISK, None, (truth,)), made)) == ["cgroup"]


@pytest.mark.parametrize(
    ("target", "checks"),
    [("/tailcause/ab12cd/batch-01", []), (CGROUP, ["aggressor"])],
)
def test_the_aggressor_must_be_named(target: str, checks: list[str]) -> None:
    """Not the victim."""
    truth = Truth("noisy-neighbour", "fault", "/tailcause/ab12cd/batch-01", ONSET_S, 4.0)
    made = report(causes=(cause("noisy_neighbour", target),))

    assert failed(judge(Facts(NEIGHBOUR, CGROUP, (truth,)), made)) == checks


@pytest.mark.parametrize(
    ("made", "outcome"), [(None, Outcome.RIGHT), (report(Verdict.NONE), Outcome.WRONG)]
)
def test_a_decoy_must_raise_nothing(made: Report | None, outcome: Outcome) -> None:
    """Whatever the report then says."""
    truth = Truth("cold-start", "decoy", "chat", ONSET_S)

    assert judge(Facts(COLD_START, CGROUP, (truth,)), made).outcome is outcome


def test_silence_is_right_when_nothing_was_injected() -> None:
    """Decoys must raise nothing."""
    assert Outcome.RIGHT is judge(Facts(NONE, CGROUP, (DECOY,)), None).outcome


def test_any_incident_is_wrong_when_nothing_was_injected() -> None:
    """A false alarm is wrong even if it then says that there is nothing."""
    judgement = judge(Facts(NONE, CGROUP, (DECOY,)), report(Verdict.NONE))

    assert failed(judgement) == ["incident"]
