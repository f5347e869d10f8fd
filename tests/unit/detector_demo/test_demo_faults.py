"""The list of faults, asked from the workload itself."""

import sys

import pytest

from detector.cli.demo import faults
from detector.cli.demo.faults import NONE, Kind
from detector.cli.demo.judge import expected_cause
from detector.cli.demo.plan import NEEDS_PROBES, draw
from detector.cli.demo.stores import STORES
from detector.errors import CannotStartError
from tests.support.demo_faults import EVERY, GPU_LOST, NET_LOSS, SLOW_DISK, SLOW_SQL


def _saying(text: str, code: int = 0) -> tuple[str, ...]:
    """Return a workload that says this."""
    stream = "stderr" if code else "stdout"
    return sys.executable, "-c", f"import sys; sys.{stream}.write({text!r}); sys.exit({code})"


def test_the_real_list_is_understood() -> None:
    """Every fault can be planned, its stores can be started, and what tests assume of some is so."""
    listed = faults.ask()
    by_name = {fault.name: fault for fault in listed}

    assert listed[-1] is NONE
    assert {Kind.FAULT, Kind.DEMAND, Kind.DECOY, Kind.NONE} == {fault.kind for fault in listed}
    assert all(draw(fault, 7, 20.0).steps for fault in listed)
    assert {scheme for fault in listed for scheme in fault.stores} <= set(STORES)
    for known in EVERY:
        found = by_name[known.name]
        assert (found.kind, found.requires) == (known.kind, known.requires)
        assert set(known.needs) <= set(found.needs)


def test_what_the_demo_knows_by_name_is_in_the_real_list() -> None:
    """A fault that is renamed would lose its proof."""
    listed = {fault.name: fault for fault in faults.ask()}

    assert set(listed) >= NEEDS_PROBES
    assert [name for name, fault in listed.items() if expected_cause(fault)] == [
        "cpu-quota", "bad-deploy", "noisy-neighbour", "memory-limit", "slow-disk",
    ]  # fmt: skip


def test_root_is_for_a_cgroup_or_for_a_network() -> None:
    """Which of them decides what is looked for on the machine."""
    found = [(fault.needs_cgroup, fault.needs_network) for fault in (SLOW_DISK, NET_LOSS, GPU_LOST)]

    assert found == [(True, False), (False, True), (False, False)]


def test_the_address_of_a_store_is_filled_in() -> None:
    """What needs no address stays as it is."""
    url = "postgresql://tailcause@/postgres?host=%2Ftmp%2Fx"

    assert SLOW_SQL.stores == ("postgresql",)
    assert SLOW_SQL.words({"postgresql": url}) == ("--set", f"tenant_db={url}")
    assert SLOW_DISK.words({}) == ("--set", "adapters=64")


def test_a_far_off_name_gets_no_suggestion() -> None:
    """A wild guess helps nobody."""
    with pytest.raises(CannotStartError, match=r"^no fault 'x': `tailcause demo --list`"):
        faults.find("x", EVERY)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (_saying("no onnx here", 2), "failed: no onnx here"),
        (_saying("not json\n"), "does not answer"),
        (_saying('{"name": "x", "kind": "weather"}\n'), "does not answer"),
        (("/no/such/program",), "does not answer"),
    ],
)
def test_a_workload_that_lists_nothing_is_one_clear_line(
    command: tuple[str, ...], said: str
) -> None:
    """With its last words."""
    with pytest.raises(CannotStartError, match=said) as raised:
        faults.ask(command)

    assert "\n" not in str(raised.value)
