"""One series: what is judged, learned, unknown."""

import random

from detector.config import DecisionConfig, ForecastConfig
from detector.decide import Observed, SeriesJudge, observed_quantile_s
from detector.forecast.tail import TailForecaster
from detector.model import SeriesKey, Signal, WindowVerdict

KEY = SeriesKey("svc", "m", "", Signal.E2E)


class Feed:
    """Feeds windows of lognormal latencies to a judge."""

    def __init__(self, **decision: float) -> None:
        config = DecisionConfig(**decision)  # type: ignore[arg-type]
        self.judge = SeriesJudge(KEY, config, lambda: TailForecaster(ForecastConfig()), 180)
        self.draw = random.Random(4)
        self.index = 0

    def __call__(
        self, n: int = 40, slow: float = 1.0, *, incident_open: bool = False
    ) -> WindowVerdict:
        """One window."""
        values = [slow * self.draw.lognormvariate(-3.0, 0.4) for _ in range(n)]
        start = 2.0 * self.index
        self.index += 1
        return self.judge.judge(Observed(start, start + 2, values, 0), incident_open=incident_open)

    def ready(self) -> "Feed":
        """With a baseline."""
        for _ in range(20):
            self()
        return self


def test_warm_up_windows_are_neither_judged_nor_learned() -> None:
    """A cold start must not become the baseline."""
    feed = Feed()
    first = [feed() for _ in range(3)]
    assert [(v.judged, v.learned) for v in first] == [(False, False), (False, False), (False, True)]


def test_a_slow_window_is_out_of_band_and_not_learned() -> None:
    """What is abnormal must not become normal."""
    verdict = Feed().ready()(slow=3.0)
    assert (verdict.judged, verdict.out_of_band, verdict.learned) == (True, True, False)
    assert verdict.residual_sigma > 2.5
    assert verdict.p99_s > verdict.upper_s > verdict.forecast_p99_s > verdict.lower_s > 0


def test_an_ordinary_window_is_in_band_and_learned() -> None:
    """Normal traffic keeps the baseline fresh."""
    verdict = Feed().ready()()
    assert (verdict.out_of_band, verdict.learned) == (False, True)
    assert verdict.lower_s <= verdict.p99_s <= verdict.upper_s


def test_nothing_is_learned_while_an_incident_is_open() -> None:
    """Not even what looks normal."""
    assert not Feed().ready()(incident_open=True).learned


def test_few_requests_are_unknown() -> None:
    """Seven requests neither extend nor end a run, and they are counted."""
    feed = Feed().ready()
    feed(slow=4.0)
    verdict = feed(n=7, slow=4.0)
    assert (verdict.judged, verdict.out_of_band, verdict.learned) == (False, False, False)
    assert feed.judge.unknown_windows == 1
    assert len(feed.judge.out_of_band_run) == 1
    feed(slow=4.0)
    assert len(feed.judge.out_of_band_run) == 2


def test_silence_is_unknown_not_in_band() -> None:
    """A service that finishes nothing is not healthy."""
    feed = Feed().ready()
    runs = feed.judge.in_band_run
    assert not feed(n=0).judged
    assert feed.judge.in_band_run == runs


def test_an_in_band_window_ends_the_run() -> None:
    """Three in a row means in a row."""
    feed = Feed().ready()
    feed(slow=4.0)
    feed(slow=4.0)
    feed()
    assert feed.judge.out_of_band_run == []


def test_a_significant_but_small_change_is_in_band() -> None:
    """With many requests 20 % is beyond doubt, and not worth waking anybody."""
    feed = Feed()
    for _ in range(20):
        feed(n=2000)
    verdict = feed(n=2000, slow=1.25)
    assert verdict.residual_sigma > 2.5
    assert not verdict.out_of_band


def test_relearning_forgets_the_old_state() -> None:
    """After it the judge needs a new baseline."""
    feed = Feed().ready()
    feed.judge.relearn()
    assert not feed.judge.ready
    assert feed(slow=3.0, incident_open=True).learned


def test_the_observed_quantile_is_an_order_statistic() -> None:
    """Rank ceil(q n), so that exceedances and band speak of the same number."""
    assert observed_quantile_s([float(i) for i in range(1, 41)], 0.99) == 40.0
    assert observed_quantile_s([float(i) for i in range(1, 201)], 0.99) == 198.0
    assert observed_quantile_s([], 0.99) == 0.0
