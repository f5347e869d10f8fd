"""What a forecaster promises: a forecast of the tail of the next window, and learning apart from it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

P99_RATE = 0.01
TAIL_RATE = 0.10
"""Rate above the threshold over which the tail is modelled."""


@dataclass(frozen=True)
class Forecast:
    """The latency distribution that the next window should be drawn from, as far as it is needed.

    All `log_*` are natural logarithms of seconds. Above `log_threshold` (the 90 % quantile) the log latency has an
    exponential tail of mean excess `tail_scale`; `body` are log quantiles at the exceedance rates `BODY_RATES`.
    `own_variance` is the variance of log(exceedance rate) that our own sampling noise causes,
    `window_variance` the one found between past windows (bursts). `requests` is what was learned from.
    """

    log_threshold: float
    tail_scale: float
    body: tuple[float, ...]
    own_variance: float
    window_variance: float
    requests: int

    @property
    def p99_s(self) -> float:
        """The forecast 99 % quantile in seconds."""
        return self.quantile_s(P99_RATE)

    @property
    def log_variance(self) -> float:
        """Variance of log(exceedance rate) of one window, from both sources."""
        return self.own_variance + self.window_variance

    @property
    def p99_standard_error(self) -> float:
        """Standard error of the log of the forecast 99 % quantile."""
        return self.tail_scale * math.sqrt(self.own_variance)

    def quantile_s(self, exceedance_rate: float) -> float:
        """Return the latency in seconds that a request exceeds with this probability."""
        if exceedance_rate <= TAIL_RATE:
            steps = math.log(TAIL_RATE / exceedance_rate)
            return math.exp(min(self.log_threshold + self.tail_scale * steps, 50.0))
        return math.exp(_interpolate(exceedance_rate, self.body))


BODY_RATES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class Forecaster(Protocol):
    """One latency series' model; `forecast` is pure, `learn` the only thing that changes it."""

    def forecast(self) -> Forecast | None:
        """Return the next window's distribution; None until enough was learned."""

    def learn(self, values_s: Sequence[float]) -> None:
        """Take in the latencies (seconds) of one window that is held to be normal."""

    def progress(self) -> float:
        """How far it is from being ready to forecast, 0..1."""


def _interpolate(rate: float, body: tuple[float, ...]) -> float:
    position = min(max((rate - 0.1) / 0.1, 0.0), len(body) - 1.0)
    lower = min(int(position), len(body) - 2)
    return body[lower] + (position - lower) * (body[lower + 1] - body[lower])
