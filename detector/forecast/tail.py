"""Peaks over threshold in log space, on a decaying reservoir of recent windows."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.config import ForecastConfig
from detector.forecast.base import BODY_RATES, P99_RATE, TAIL_RATE, Forecast

Floats = NDArray[np.float64]

_MOST_PER_WINDOW = 512
_LEVEL_HALF_LIFE_WINDOWS = 30
_LEAST_LATENCY_S = 1e-6
_LEAST_LOG_SCALE = 0.01
_LEAST_TAIL_SCALE = 0.02  # a tail of constant latencies: 2 % per e-fold of rarity
_QUANTILE_NOISE = (1 - TAIL_RATE) / TAIL_RATE + math.log(TAIL_RATE / P99_RATE) ** 2 / TAIL_RATE


@dataclass(frozen=True)
class _Window:
    """Sorted log latencies less the level of their time; `requests` that they stand for."""

    residuals: Floats
    requests: int


class TailForecaster:
    """Hill's estimator of the 99 % quantile above the weighted 90 %, around a slowly drifting level.

    q99 = u + beta ln(0.10 / 0.01), with u the 90 % quantile and beta the mean excess over it, both of log latency
    (B. M. Hill, Annals of Statistics 3(5), 1975; I. Weissman, JASA 73(364), 1978). The whole upper tenth of the
    data speaks, so it scatters less than the empirical 99 % quantile (by a tenth at 500 lognormal requests) and its
    own standard error has a closed form.

    >>> import random
    >>> from detector.config import ForecastConfig
    >>> draw = random.Random(7)
    >>> forecaster = TailForecaster(ForecastConfig())
    >>> for _ in range(50):
    ...     forecaster.learn([draw.lognormvariate(-3.0, 0.4) for _ in range(40)])
    >>> round(forecaster.forecast().p99_s / math.exp(-3.0 + 0.4 * 2.326), 1)
    1.0
    """

    def __init__(self, config: ForecastConfig) -> None:
        self._config = config
        self._windows: deque[_Window] = deque()
        self._medians: deque[float] = deque(maxlen=120)
        self._counts: deque[tuple[int, int, int]] = deque(maxlen=config.dispersion_windows)
        self._level = 0.0
        self._level_weight = 0.0
        self._requests = 0
        self._cached: Forecast | None = None

    def progress(self) -> float:
        """How far it is from being ready to forecast, 0..1."""
        return min(
            1.0,
            self._requests / self._config.min_baseline_requests,
            len(self._windows) / self._config.min_baseline_windows,
        )

    def forecast(self) -> Forecast | None:
        """Return the next window's distribution; None until enough was learned."""
        if self.progress() < 1.0:
            return None
        if self._cached is None:
            self._cached = self._estimate()
        return self._cached

    def learn(self, values_s: Sequence[float]) -> None:
        """Take in the latencies (seconds) of one window that is held to be normal."""
        if not values_s:
            return
        logs = np.sort(np.log(np.maximum(np.asarray(values_s, np.float64), _LEAST_LATENCY_S)))
        forecast = self.forecast()
        if forecast is not None:
            self._count(logs, forecast)
        self._move_level(float(np.median(logs)))
        self._windows.append(_Window(_thin(logs) - self._level, len(logs)))
        self._requests += len(logs)
        self._forget()
        self._cached = None

    def _count(self, logs: Floats, forecast: Forecast) -> None:
        above = len(logs) - np.searchsorted(
            logs, [forecast.log_threshold, math.log(forecast.p99_s)], side="right"
        )
        self._counts.append((len(logs), int(above[0]), int(above[1])))

    def _move_level(self, median: float) -> None:
        """Bias-corrected EWMA of window medians; one odd window moves it by three scales at most."""
        if len(self._medians) >= self._config.min_baseline_windows:
            reach = 3 * robust_scale(np.fromiter(self._medians, np.float64))
            median = min(max(median, self._level - reach), self._level + reach)
        self._medians.append(median)
        keep = 0.5 ** (1 / _LEVEL_HALF_LIFE_WINDOWS)
        self._level_weight = self._level_weight * keep + 1.0
        self._level += (median - self._level) / self._level_weight

    def _forget(self) -> None:
        held = sum(len(window.residuals) for window in self._windows)
        while held > self._config.reservoir_values and len(self._windows) > 1:
            held -= len(self._windows.popleft().residuals)

    def _estimate(self) -> Forecast:
        values, weights, effective = self._weighted()
        above = np.cumsum(weights[::-1])[::-1] - weights / 2  # weight at and above each value
        body = np.interp(-np.array(BODY_RATES), -above, values) + self._level
        threshold = float(body[0])
        excess = values + self._level - threshold
        tail = excess > 0
        weight = float(weights[tail].sum())
        scale = float((excess[tail] * weights[tail]).sum()) / weight if weight > 0 else 0.0
        variance = self._window_variance()
        correlated = 1 + self._mean_window() * TAIL_RATE * math.expm1(min(variance, 3.0))
        return Forecast(
            log_threshold=threshold,
            tail_scale=max(scale, _LEAST_TAIL_SCALE),
            body=tuple(float(value) for value in body),
            own_variance=_QUANTILE_NOISE * correlated / effective,
            window_variance=variance,
            requests=self._requests,
        )

    def _weighted(self) -> tuple[Floats, Floats, float]:
        """Sorted residuals, their weights (sum 1) and the effective number of requests."""
        ages = np.arange(len(self._windows) - 1, -1, -1, dtype=np.float64)
        decay = 0.5 ** (ages / self._config.half_life_windows)
        sizes = [len(window.residuals) for window in self._windows]
        requests = np.array([window.requests for window in self._windows], np.float64)
        per_value = np.repeat(decay * requests / np.array(sizes), sizes)
        values = np.concatenate([window.residuals for window in self._windows])
        order = np.argsort(values, kind="stable")
        total = float((decay * requests).sum())
        effective = total**2 / float((decay**2 * requests).sum())
        return values[order], per_value[order] / total, effective

    def _mean_window(self) -> float:
        return sum(window.requests for window in self._windows) / len(self._windows)

    def _window_variance(self) -> float:
        """Variance of log(exceedance rate) between windows, by moments of past counts.

        The counts above the 90 % quantile are ten times as many, so they say more; where those above the 99 %
        quantile spread significantly wider (bursts that only reach the tail), they win. With few windows the
        configured prior speaks.
        """
        prior, weight = self._config.prior_window_variance, self._config.prior_windows
        if not self._counts:
            return prior
        counts = np.array(self._counts, np.float64)
        broad, _ = _log_rate_variance(counts[:, 0], counts[:, 1], TAIL_RATE)
        narrow, error = _log_rate_variance(counts[:, 0], counts[:, 2], P99_RATE)
        measured = max(broad, narrow - error, 0.0)
        return (weight * prior + len(counts) * measured) / (weight + len(counts))


def robust_scale(values: Floats) -> float:
    """Return a standard deviation that neither outliers nor flat stretches upset.

    The median absolute deviation alone collapses to 0 where more than half of the values agree.
    """
    if values.size == 0:
        return _LEAST_LOG_SCALE
    deviation = 1.4826 * float(np.median(np.abs(values - np.median(values))))
    low, high = np.quantile(values, (0.05, 0.95))
    return max(deviation, float(high - low) / 3.29, _LEAST_LOG_SCALE)


def _log_rate_variance(sizes: Floats, above: Floats, rate: float) -> tuple[float, float]:
    """Variance of log(rate) between windows, and its standard error, from binomial counts."""
    noise = sizes * rate * (1 - rate)
    pairs = float((sizes * (sizes - 1)).sum()) * rate**2
    if pairs <= 0:
        return 0.0, 0.0
    surplus = float(((above - sizes * rate) ** 2 - noise).sum())
    error = math.sqrt(float((2 * noise**2 + noise).sum())) / pairs
    return math.log1p(max(surplus / pairs, 0.0)), error


def _thin(logs: Floats) -> Floats:
    """At most `_MOST_PER_WINDOW` evenly ranked values of a sorted window."""
    if len(logs) <= _MOST_PER_WINDOW:
        return logs
    ranks = (np.arange(_MOST_PER_WINDOW) + 0.5) * len(logs) / _MOST_PER_WINDOW
    return logs[ranks.astype(np.int64)]
