"""The series that are told where there are more than the bound."""

from hypothesis import given
from hypothesis import strategies as st

from ebpf.busiest import Busiest

COUNTERS = st.dictionaries(st.integers(0, 30), st.integers(0, 5))
LIMIT = 4


@given(st.lists(COUNTERS, min_size=1, max_size=5))
def test_those_that_grow_most_are_picked(rounds: list[dict[int, int]]) -> None:
    """It is the ranking by growth (twice for who is in), then size, then name; whatever comes and goes."""
    busiest: Busiest[int] = Busiest(LIMIT)
    before: dict[int, float] = {}
    picked: set[int] = set()
    for counters in rounds:
        growth = {
            key: (value - before.get(key, 0)) * (2 if key in picked else 1)
            for key, value in counters.items()
        }
        ranked = sorted(counters, key=lambda key: (-growth[key], -counters[key], str(key)))
        picked = busiest.pick(counters)
        assert picked == set(ranked[:LIMIT])
        before = dict(counters)


def test_what_is_left_out_is_counted() -> None:
    """The count adds up over the rounds."""
    busiest: Busiest[str] = Busiest(1)
    for _ in range(2):
        busiest.pick({"a": 1.0, "b": 2.0, "c": 3.0})
    assert busiest.overflow == 4
