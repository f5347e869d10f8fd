"""Rows move up without mixing up who has which."""

from hypothesis import given
from hypothesis import strategies as st

from kernels.workload.generation import Generation, Task
from kernels.workload.rows import Rows

Action = tuple[str, int]
ACTIONS = st.lists(st.tuples(st.sampled_from(["join", "promote", "leave"]), st.integers(0, 7)))


@given(ACTIONS)
def test_every_request_finds_its_own_in_its_row(actions: list[Action]) -> None:
    """Whoever joins, begins to decode or leaves in any order: row by row, the memory is what its owner wrote."""
    memory: dict[int, Generation] = {}

    def move(source: int, target: int, length: int) -> None:
        assert length == memory[source].cached
        memory[target] = memory[source]

    rows = Rows(move)
    for action, number in actions:
        if action == "join" and len(rows) < 8:
            one = Generation(Task([1], 1), sink=lambda _: None)
            one.cached = number + 1
            memory[rows.join(one)] = one
        elif action == "promote":
            rows.promote(number % (len(rows.prefilling) + 1))
        elif action == "leave" and len(rows):
            rows.leave(list(rows)[number % len(rows)])
        assert [memory[row] for row in range(len(rows))] == list(rows)


def test_those_that_are_prefilled_keep_their_order() -> None:
    """The first in the queue is the next to be prefilled, whoever leaves ahead of it."""
    rows = Rows(lambda *_: None)
    first, second, third = (Generation(Task([1], 1), sink=lambda _: None) for _ in range(3))
    for one in (first, second, third):
        rows.join(one)
    rows.promote(1)
    rows.leave(first)
    assert rows.prefilling == [second, third]
