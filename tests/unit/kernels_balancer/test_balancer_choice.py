"""Who takes the next request, and how often one may be tried twice."""

from kernels.balancer.backends import Backend, Backends
from kernels.balancer.retries import RetryBudget


def names(backends: Backends, count: int) -> list[str]:
    """Pick several times and keep every pick in flight."""
    picked = []
    for _ in range(count):
        one = backends.pick()
        assert one is not None
        one.in_flight += 1
        picked.append(one.name)
    return picked


def pair() -> tuple[Backend, Backend, Backends]:
    """Make two replicas."""
    a, b = Backend("a", "http://a"), Backend("b", "http://b")
    return a, b, Backends([a, b])


async def test_the_least_loaded_takes_the_next() -> None:
    """Loads level out, wherever they began."""
    a, _, backends = pair()
    a.in_flight = 3
    assert names(backends, 3) == ["b", "b", "b"]
    assert sorted(names(backends, 4)) == ["a", "a", "b", "b"]


async def test_equals_take_turns() -> None:
    """Requests that are over at once do not all go to the first replica."""
    _, _, backends = pair()
    picked = [one.name for _ in range(10) if (one := backends.pick()) is not None]
    assert sorted(picked) == ["a"] * 5 + ["b"] * 5


async def test_two_failures_take_a_replica_out_and_two_successes_bring_it_back() -> None:
    """One slip changes nothing, in either direction."""
    a, _, backends = pair()
    verdicts = []
    for well in (False, True, False, False, True, False, True, True):
        a.note(well=well, reason="timeout")
        verdicts.append(a.healthy)
    assert verdicts == [True, True, True, False, False, False, False, True]
    a.fall("refused")
    assert set(names(backends, 3)) == {"b"}


async def test_when_all_are_down_all_are_tried() -> None:
    """A check that fails everywhere does not turn every request away."""
    a, b, backends = pair()
    a.fall("x")
    b.fall("x")
    assert not backends.any_healthy
    assert sorted(names(backends, 2)) == ["a", "b"]
    assert backends.pick([a, b]) is None


def test_a_fifth_of_the_requests_may_be_tried_twice() -> None:
    """Beyond the burst, retries are a share of the traffic and cannot double it."""
    budget = RetryBudget()
    while budget.spend():
        pass
    spent = 0
    for _ in range(1000):
        budget.earn()
        spent += budget.spend()
    assert spent in (199, 200)
