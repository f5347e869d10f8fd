"""Judges one window of one series against its forecast."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from detector.config import DecisionConfig
from detector.forecast.base import P99_RATE, Forecast, Forecaster
from detector.forecast.exceedance import p99_band_rates, rho_from_log_variance, sigma_of_count
from detector.model import SeriesKey, WindowVerdict


@dataclass(frozen=True)
class Observed:
    """The latencies (seconds) of one series in one window, and how many requests failed."""

    start_unix_s: float
    end_unix_s: float
    values_s: Sequence[float]
    failures: int


@dataclass(frozen=True)
class Residual:
    """How far a window is from its forecast; `lower_s`..`upper_s` is the band of its observed P99."""

    exceedances: int
    sigma: float
    lower_s: float
    upper_s: float


def residual(values_s: Sequence[float], forecast: Forecast, sigma: float) -> Residual:
    """Count the requests above the forecast 99 % quantile and say how unlikely that is."""
    n = len(values_s)
    exceedances = sum(value > forecast.p99_s for value in values_s)
    rate = P99_RATE * math.exp(min(forecast.own_variance, 2.0) / 2)
    rho = rho_from_log_variance(rate, forecast.log_variance)
    low_rate, high_rate = p99_band_rates(n, round(forecast.log_variance, 2), sigma)
    return Residual(
        exceedances=exceedances,
        sigma=sigma_of_count(exceedances, n, rate, rho),
        lower_s=forecast.quantile_s(low_rate),
        upper_s=forecast.quantile_s(high_rate),
    )


def observed_quantile_s(ordered_s: Sequence[float], quantile: float) -> float:
    """Return the order statistic of rank ceil(q n); 0 of nothing (`n` says so)."""
    if not ordered_s:
        return 0.0
    return ordered_s[max(0, math.ceil(quantile * len(ordered_s)) - 1)]


class SeriesJudge:
    """One series: its forecaster, its recent verdicts, and how many in a row were out of its band.

    A window that cannot be judged (fewer than `min_requests` finished, or no baseline yet) is unknown: it neither
    extends nor ends a run, and it is counted in `unknown_windows`.
    """

    def __init__(
        self,
        key: SeriesKey,
        config: DecisionConfig,
        make_forecaster: Callable[[], Forecaster],
        history_windows: int,
    ) -> None:
        self.key = key
        self.out_of_band_run: list[WindowVerdict] = []
        self.in_band_run = 0
        self.unknown_windows = 0
        self.verdicts: deque[WindowVerdict] = deque(maxlen=history_windows)
        self.baseline_start_unix_s: float | None = None
        self.forecaster = make_forecaster()
        self._config = config
        self._make_forecaster = make_forecaster
        self._warmup_left = config.warmup_windows

    @property
    def ready(self) -> bool:
        """Whether it has learned enough to judge."""
        return self.forecaster.progress() >= 1.0

    def inherit(self, forecaster: Forecaster) -> None:
        """Start from a sibling's state instead of cold."""
        self.forecaster = forecaster

    def relearn(self) -> None:
        """Forget what was normal: after a long incident the new state is the state."""
        self.forecaster = self._make_forecaster()
        self.out_of_band_run = []
        self.in_band_run = 0
        self.baseline_start_unix_s = None

    def judge(self, window: Observed, *, incident_open: bool) -> WindowVerdict:
        """Judge a window, and learn it if it is normal and no incident is open."""
        verdict = self._verdict(window, incident_open=incident_open)
        if verdict.learned:
            self.forecaster.learn(window.values_s)
            if self.baseline_start_unix_s is None:
                self.baseline_start_unix_s = window.start_unix_s
        self._follow(verdict)
        self.verdicts.append(verdict)
        return verdict

    def _verdict(self, window: Observed, *, incident_open: bool) -> WindowVerdict:
        ordered = sorted(window.values_s)
        if self._warmup_left > 0:
            self._warmup_left -= bool(ordered)
            return self._unjudged(window, ordered, learned=False)
        forecast = self.forecaster.forecast()
        if forecast is None:
            return self._unjudged(window, ordered, learned=bool(ordered))
        if len(ordered) < self._config.min_requests:
            return self._unjudged(window, ordered, learned=False, forecast=forecast)
        found = residual(ordered, forecast, self._config.sigma)
        p99_s = observed_quantile_s(ordered, 0.99)
        out_of_band = (
            found.sigma > self._config.sigma and p99_s >= self._config.min_ratio * forecast.p99_s
        )
        return WindowVerdict(
            key=self.key,
            start_unix_s=window.start_unix_s,
            end_unix_s=window.end_unix_s,
            n=len(ordered),
            failures=window.failures,
            p50_s=observed_quantile_s(ordered, 0.5),
            p99_s=p99_s,
            forecast_p99_s=forecast.p99_s,
            lower_s=found.lower_s,
            upper_s=found.upper_s,
            exceedances=found.exceedances,
            residual_sigma=found.sigma,
            out_of_band=out_of_band,
            learned=not out_of_band and not incident_open,
        )

    def _unjudged(
        self,
        window: Observed,
        ordered: Sequence[float],
        *,
        learned: bool,
        forecast: Forecast | None = None,
    ) -> WindowVerdict:
        expected_s = forecast.p99_s if forecast else 0.0
        return WindowVerdict(
            key=self.key,
            start_unix_s=window.start_unix_s,
            end_unix_s=window.end_unix_s,
            n=len(ordered),
            failures=window.failures,
            p50_s=observed_quantile_s(ordered, 0.5),
            p99_s=observed_quantile_s(ordered, 0.99),
            forecast_p99_s=expected_s,
            lower_s=0.0,
            upper_s=0.0,
            exceedances=0,
            residual_sigma=0.0,
            out_of_band=False,
            learned=learned,
            judged=False,
        )

    def _follow(self, verdict: WindowVerdict) -> None:
        if not verdict.judged:
            self.unknown_windows += self.ready and not verdict.learned
        elif verdict.out_of_band:
            self.out_of_band_run.append(verdict)
            del self.out_of_band_run[: -self._config.consecutive_windows * 20]
            self.in_band_run = 0
        else:
            self.out_of_band_run = []
            self.in_band_run += 1
