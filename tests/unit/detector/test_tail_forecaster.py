"""The estimator "tail": accuracy against a reference, drift, robustness."""

import math
import random

import numpy as np
import pytest

from detector.config import ForecastConfig
from detector.forecast.base import Forecast
from detector.forecast.tail import TailForecaster, robust_scale

CONFIG = ForecastConfig()


def trained(seed: int, windows: int, n: int = 40, sigma: float = 0.4) -> TailForecaster:
    """Learned from lognormal windows around 50 ms."""
    draw = random.Random(seed)
    forecaster = TailForecaster(CONFIG)
    for _ in range(windows):
        forecaster.learn([draw.lognormvariate(-3.0, sigma) for _ in range(n)])
    return forecaster


def forecast_of(forecaster: TailForecaster) -> Forecast:
    """Its forecast, which must be there."""
    forecast = forecaster.forecast()
    assert forecast is not None
    return forecast


def test_a_single_stationary_window_gives_the_reference_estimate() -> None:
    """Equal weights: u is the P90 and beta the mean excess, straight from the definition."""
    config = ForecastConfig(min_baseline_requests=1, min_baseline_windows=1)
    values = np.exp(np.random.default_rng(2).normal(-3, 0.4, 500))
    forecaster = TailForecaster(config)
    forecaster.learn(list(values))
    logs = np.sort(np.log(values))
    threshold = logs[450] - 0.5 * (logs[450] - logs[449])
    excess = logs[logs > threshold] - threshold
    expected = math.exp(threshold + excess.mean() * math.log(10))
    assert forecast_of(forecaster).p99_s == pytest.approx(expected, rel=0.02)


def test_it_scatters_less_than_the_empirical_quantile() -> None:
    """Over 200 draws of 500 requests its standard deviation is the smaller one."""
    tail, empirical = [], []
    for seed in range(200):
        values = np.random.default_rng(seed).normal(0, 0.4, (13, 40))
        forecaster = TailForecaster(CONFIG)
        for row in values:
            forecaster.learn(list(np.exp(row)))
        tail.append(math.log(forecast_of(forecaster).p99_s))
        empirical.append(np.quantile(values, 0.99))
    assert np.std(tail) < 0.95 * np.std(empirical)


def test_it_knows_its_own_standard_error() -> None:
    """The stated error is within 40 % of the scatter seen over repeated baselines."""
    forecasts = [forecast_of(trained(seed, 15)) for seed in range(120)]
    scatter = float(np.std([math.log(forecast.p99_s) for forecast in forecasts]))
    stated = float(np.mean([forecast.p99_standard_error for forecast in forecasts]))
    assert 0.6 * scatter < stated < 1.7 * scatter


def test_it_waits_for_requests_and_for_windows() -> None:
    """400 requests in two windows are not a baseline, nor are twelve windows of ten."""
    assert trained(1, 2, n=250).forecast() is None
    assert trained(1, 12, n=10).forecast() is None
    assert trained(1, 12, n=40).forecast() is not None


def test_forecasting_changes_nothing() -> None:
    """Asking twice gives the same answer."""
    forecaster = trained(3, 20)
    assert forecaster.forecast() == forecaster.forecast()


def test_the_level_follows_a_slow_drift() -> None:
    """A rise by 60 % over 200 windows is followed to within 10 %."""
    draw = random.Random(5)
    forecaster = TailForecaster(CONFIG)
    for index in range(240):
        shift = math.log(1.6) * min(1, max(0, index - 20) / 200)
        forecaster.learn([draw.lognormvariate(-3.0 + shift, 0.4) for _ in range(40)])
    expected = 1.6 * math.exp(-3.0 + 2.3263 * 0.4)
    assert forecast_of(forecaster).p99_s == pytest.approx(expected, rel=0.15)


def test_shared_noise_is_measured_as_window_variance() -> None:
    """Windows whose level jumps together have a larger variance of the rate than independent ones."""
    rng = np.random.default_rng(1)
    shaken = TailForecaster(CONFIG)
    for _ in range(150):
        shaken.learn(list(np.exp(rng.normal(-3 + 0.2 * rng.standard_normal(), 0.4, 40))))
    calm = forecast_of(trained(9, 150)).window_variance
    assert calm < 0.15
    assert forecast_of(shaken).window_variance > 3 * calm


@pytest.mark.parametrize("value", [0.0, 0.001, 5.0])
def test_constant_latencies_give_a_finite_forecast(value: float) -> None:
    """A flat series must neither divide by zero nor collapse to a band of no width."""
    forecaster = TailForecaster(CONFIG)
    for _ in range(20):
        forecaster.learn([value] * 40)
    forecast = forecast_of(forecaster)
    assert forecast.p99_s >= max(value, 1e-6)
    assert forecast.quantile_s(0.0001) > forecast.p99_s


def test_memory_is_bounded_whatever_the_traffic() -> None:
    """Ten thousand requests a window are thinned to evenly ranked ones."""
    forecaster = TailForecaster(CONFIG)
    draw = np.random.default_rng(4)
    for _ in range(30):
        forecaster.learn(list(draw.lognormal(-3, 0.4, 10_000)))
    held = sum(len(window.residuals) for window in forecaster._windows)
    assert held <= CONFIG.reservoir_values
    assert forecast_of(forecaster).p99_s == pytest.approx(math.exp(-3 + 2.3263 * 0.4), rel=0.06)


def test_the_robust_scale_survives_a_flat_series() -> None:
    """More than half equal values: the median deviation is 0, the P5-P95 range is not."""
    values = np.array([0.0] * 60 + [1.0] * 20 + [-1.0] * 20)
    assert robust_scale(values) == pytest.approx(2 / 3.29)
    assert robust_scale(np.zeros(50)) > 0
