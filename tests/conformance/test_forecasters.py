"""What every registered forecaster promises."""

import copy
import doctest
import importlib
import math
import pickle
import random

import pytest

from detector.config import ForecastConfig
from detector.forecast.base import Forecaster
from detector.forecast.registry import FORECASTERS

CONFIG = ForecastConfig()
NAMES = sorted(FORECASTERS)


def trained(name: str, scale: float = 1.0) -> Forecaster:
    """Learned from 30 lognormal windows of 40 requests."""
    draw = random.Random(1)
    forecaster = FORECASTERS[name](CONFIG)
    for _ in range(30):
        forecaster.learn([scale * draw.lognormvariate(-3.0, 0.4) for _ in range(40)])
    return forecaster


@pytest.mark.parametrize("name", NAMES)
def test_it_has_nothing_to_say_before_it_learned(name: str) -> None:
    """Cold: no forecast and no progress."""
    forecaster = FORECASTERS[name](CONFIG)
    assert (forecaster.forecast(), forecaster.progress()) == (None, 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_window_teaches_nothing(name: str) -> None:
    """Silence is no data."""
    forecaster = trained(name)
    before = forecaster.forecast()
    forecaster.learn([])
    assert forecaster.forecast() == before


@pytest.mark.parametrize("name", NAMES)
def test_the_forecast_is_near_the_truth(name: str) -> None:
    """Within 20 % of the true 99 % quantile after 1 200 requests."""
    forecast = trained(name).forecast()
    assert forecast is not None
    assert forecast.p99_s == pytest.approx(math.exp(-3 + 2.3263 * 0.4), rel=0.2)


@pytest.mark.parametrize("name", NAMES)
def test_it_scales_with_the_unit(name: str) -> None:
    """Latencies ten times as long give a forecast ten times as long."""
    small, large = trained(name).forecast(), trained(name, 10.0).forecast()
    assert small is not None
    assert large is not None
    assert large.p99_s == pytest.approx(10 * small.p99_s, rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_quantiles_fall_with_the_exceedance_rate(name: str) -> None:
    """The distribution is monotonic from the body into the far tail."""
    forecast = trained(name).forecast()
    assert forecast is not None
    quantiles = [
        forecast.quantile_s(rate) for rate in (1e-9, 1e-4, 0.01, 0.05, 0.1, 0.3, 0.7, 0.99)
    ]
    assert quantiles == sorted(quantiles, reverse=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_windows_give_the_same_forecast(name: str) -> None:
    """No hidden randomness."""
    assert trained(name).forecast() == trained(name).forecast()


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_learns_on_its_own(name: str) -> None:
    """A new replica starts from a copy; it must not teach the original."""
    original = trained(name)
    before = original.forecast()
    pickle.loads(pickle.dumps(original)).learn([9.0] * 40)  # noqa: S301  our own bytes
    copy.deepcopy(original).learn([9.0] * 40)
    assert original.forecast() == before


@pytest.mark.parametrize("name", NAMES)
def test_its_doctest_holds(name: str) -> None:
    """The example in the docstring is true, and there is one."""
    module = importlib.import_module(FORECASTERS[name].__module__)
    result = doctest.testmod(module)
    assert (result.failed, result.attempted > 0) == (0, True)
