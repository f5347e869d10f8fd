"""What the seed decides, and what no seed may break."""

import pytest

from detector.cli.demo.faults import NONE, Fault
from detector.cli.demo.plan import CLEAR_OF_FAULT_S, Plan, draw, without_cgroups
from tests.support.demo_faults import (
    BAD_DEPLOY,
    BYSTANDER,
    COLD_START,
    CPU_QUOTA,
    EVERY,
    IDLE_NEIGHBOUR,
    LONG_PROMPTS,
    NEIGHBOUR,
    NET_LOSS,
    SLOW_DISK,
    SURGE,
)

SEEDS = range(200)


def _gaps_from_fault(plan: Plan) -> list[float]:
    """Return the pause between the fault and each neighbour in the plan."""
    real = next(i for i, step in enumerate(plan.steps) if not step.decoy)
    following = [step.wait_s for step in plan.steps[real + 1 : real + 2]]
    return [plan.steps[real].wait_s, *following]


@pytest.mark.parametrize("fault", EVERY)
def test_same_seed_same_plan(fault: Fault) -> None:
    """A seed can be given again to see the same run."""
    assert draw(fault, 7, 20.0) == draw(fault, 7, 20.0)


def test_seeds_differ_in_all_that_a_detector_could_learn_by_heart() -> None:
    """Names, revision and cgroup are not the same from run to run."""
    plans = [draw(CPU_QUOTA, seed, 20.0) for seed in SEEDS]

    distinct = [
        len({getattr(plan, name) for plan in plans}) for name in ("service", "cgroup", "revision")
    ]

    assert [len(plans)] * 3 == distinct


def test_the_deploy_comes_before_the_fault_in_some_runs_and_after_it_in_others() -> None:
    """The order of decoy and fault gives nothing away."""
    orders = {tuple(step.injection for step in draw(CPU_QUOTA, seed, 20.0).steps) for seed in SEEDS}

    assert {
        ("decoy-throttled", "decoy-deploy", "cpu-quota"),
        ("decoy-throttled", "cpu-quota", "decoy-deploy"),
    } == orders


@pytest.mark.parametrize("fault", [CPU_QUOTA, BAD_DEPLOY, SURGE, NET_LOSS, LONG_PROMPTS])
def test_no_decoy_is_within_three_windows_of_the_fault(fault: Fault) -> None:
    """A decoy at the very time of the fault could not be told from it by anybody."""
    gaps = [gap for seed in SEEDS for gap in _gaps_from_fault(draw(fault, seed, 20.0))]

    assert min(gaps) > CLEAR_OF_FAULT_S
    assert max(gaps) < 20.0


@pytest.mark.parametrize("fault", [CPU_QUOTA, BAD_DEPLOY, SURGE, NET_LOSS, LONG_PROMPTS])
def test_every_fault_is_strong_enough_for_a_short_run(fault: Fault) -> None:
    """A factor of three is what some ten windows can prove."""
    weakest = min(
        step.intensity for seed in SEEDS for step in draw(fault, seed, 20.0).steps if not step.decoy
    )

    assert weakest >= 3.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_but_decoys_without_a_fault(seed: int) -> None:
    """A quiet run has the same distractions."""
    plan = draw(NONE, seed, 20.0)

    assert [step.injection for step in plan.steps] == ["decoy-throttled", "decoy-deploy"]
    assert all(step.decoy for step in plan.steps)


@pytest.mark.parametrize("fault", [COLD_START, BYSTANDER, IDLE_NEIGHBOUR])
def test_a_decoy_is_the_last_thing_that_happens(fault: Fault) -> None:
    """No step is injected twice, none is a fault, and there is time to be silent in afterwards."""
    plan = draw(fault, 7, 20.0)
    names = [step.injection for step in plan.steps]

    assert fault.name in names
    assert len(set(names)) == len(names) == 2
    assert all(step.decoy for step in plan.steps)
    assert plan.hold_s >= 20.0


@pytest.mark.parametrize("fault", [NET_LOSS, SLOW_DISK, LONG_PROMPTS])
def test_a_fault_that_the_plan_has_never_heard_of_is_injected_last(fault: Fault) -> None:
    """Its name comes from the workload's list; a bystander runs along."""
    steps = draw(fault, 7, 20.0).steps

    assert [(step.injection, step.decoy) for step in steps] == [
        ("decoy-throttled", True), (fault.name, False),
    ]  # fmt: skip


def test_neighbours_alone_get_the_servers_a_core_of_their_own() -> None:
    """Otherwise there would be no other core for the decoy."""
    pinned = [fault for fault in EVERY if draw(fault, 7, 20.0).cpus is not None]

    assert pinned == [NEIGHBOUR, IDLE_NEIGHBOUR]


def test_without_cgroups_the_bystander_is_left_out() -> None:
    """The fault itself stays."""
    plan = without_cgroups(draw(BAD_DEPLOY, 3, 20.0))

    assert [step.injection for step in plan.steps] == ["bad-deploy"]


@pytest.mark.parametrize("fault", EVERY)
def test_the_plan_fits_the_time_that_a_demo_may_take(fault: Fault) -> None:
    """The pauses leave room for the baseline, the detection and the analysis within 100 s."""
    longest = max(sum(step.wait_s for step in draw(fault, seed, 20.0).steps) for seed in SEEDS)

    assert longest <= 26.0
