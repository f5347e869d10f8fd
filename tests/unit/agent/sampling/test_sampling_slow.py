"""What is slow is above the running quantile of its own kind."""

import random

from agent.sampling.slow import MIN_COUNT, SlowBar


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def feed(
    bar: SlowBar, clock: Clock, durations: list[float], key: tuple[str, str] = ("a", "b")
) -> int:
    """Judge durations that come at 50 a second; return how many were slow."""
    slow = 0
    for duration_s in durations:
        clock.now_s += 0.02
        slow += bar.is_slow(key, duration_s)
    return slow


def lognormal(count: int, seed: int = 1) -> list[float]:
    """Return durations around 100 ms."""
    rng = random.Random(seed)
    return [0.1 * rng.lognormvariate(0, 0.5) for _ in range(count)]


def test_everything_is_slow_while_little_is_known() -> None:
    """The first durations of a kind are all kept."""
    clock = Clock()
    assert feed(SlowBar(monotonic_s=clock), clock, lognormal(MIN_COUNT)) == MIN_COUNT


def test_about_a_twentieth_is_slow() -> None:
    """Of steady traffic the share above the quantile is 5 %, less what shares its bucket."""
    clock = Clock()
    bar = SlowBar(monotonic_s=clock)
    feed(bar, clock, lognormal(2000))
    slow = feed(bar, clock, lognormal(5000, seed=2))
    assert 100 <= slow <= 350  # 2 % to 7 %: a bucket is 9 % wide


def test_an_outlier_is_slow_and_equals_are_not() -> None:
    """Durations that are all the same are none of them slow; three times as much is."""
    clock = Clock()
    bar = SlowBar(monotonic_s=clock)
    feed(bar, clock, [0.1] * 200)
    assert feed(bar, clock, [0.1] * 200) == 0
    assert feed(bar, clock, [0.3]) == 1


def test_kinds_are_apart() -> None:
    """A slow kind does not hide the slow ones of a quick kind."""
    clock = Clock()
    bar = SlowBar(monotonic_s=clock)
    feed(bar, clock, [10.0] * 200, ("a", "slow"))
    feed(bar, clock, [0.1] * 200, ("a", "quick"))
    assert feed(bar, clock, [1.0], ("a", "quick")) == 1


def test_what_is_a_minute_old_is_forgotten() -> None:
    """After a change of pace the bar follows within a minute."""
    clock = Clock()
    bar = SlowBar(monotonic_s=clock)
    feed(bar, clock, [0.1] * 500)
    feed(bar, clock, [1.0] * 4000)  # 80 s
    assert feed(bar, clock, [1.0] * 50) == 0


def test_kinds_are_bounded() -> None:
    """The kind that was not seen longest makes room."""
    clock = Clock()
    bar = SlowBar(max_keys=2, monotonic_s=clock)
    for name in ("x", "y", "z"):
        feed(bar, clock, [0.1] * 100, ("a", name))
    assert feed(bar, clock, [0.1], ("a", "x")) == 1  # forgotten, so it is new
    assert feed(bar, clock, [0.1], ("a", "z")) == 0


def test_zero_and_negative_durations_have_a_bucket() -> None:
    """A clock that was set back does no harm."""
    clock = Clock()
    assert feed(SlowBar(monotonic_s=clock), clock, [0.0, -1.0]) == 2
