"""How unlikely a count of exceedances is, when the rate itself is uncertain.

A window of 10 to 30 requests has no P99 worth the name (it is the maximum), so a window is judged by how many
of its `n` requests exceed a forecast quantile. The count is beta-binomial: binomial, with a rate that varies from
window to window (bursts) and that we know with an error only (sampling noise of the quantile).
"""

import math
from functools import lru_cache
from statistics import NormalDist

_NORMAL = NormalDist()
MAX_SIGMA = 10.0
_MAX_RHO = 0.5
_TINY = 1e-300


def rho_from_log_variance(rate: float, log_variance: float) -> float:
    """Intraclass correlation of a rate that is lognormal around `rate` with `log_variance`."""
    if log_variance <= 0:
        return 0.0
    return min(_MAX_RHO, rate * math.expm1(min(log_variance, 5.0)) / (1 - rate))


def upper_tail(k: int, n: int, rate: float, rho: float, *, at_k: float = 1.0) -> float:
    """P(K > k) + at_k P(K = k) for K beta-binomial(n, rate, rho); rho 0 is the binomial."""
    if k <= 0 and at_k >= 1.0:
        return 1.0
    below = _lower_sum(k, n, rate, rho) if k < n * rate else None
    first = math.exp(_log_pmf(k, n, rate, rho))
    if below is not None:
        return max(0.0, 1.0 - below - (1.0 - at_k) * first)
    total, term = at_k * first, first
    for i in range(k, n):
        term *= _ratio(i, n, rate, rho)
        total += term
        if term < total * 1e-12:
            break
    return min(1.0, total)


def sigma_of_count(k: int, n: int, rate: float, rho: float) -> float:
    """Return the normal deviate as unlikely as `k` or more exceedances (mid-p), clipped to +-MAX_SIGMA."""
    tail = upper_tail(k, n, rate, rho, at_k=0.5)
    if tail >= 1.0:
        return -MAX_SIGMA
    sigma = -_NORMAL.inv_cdf(max(tail, _TINY))
    return max(-MAX_SIGMA, min(MAX_SIGMA, sigma))


@lru_cache(maxsize=4096)
def p99_band_rates(n: int, log_variance: float, sigma: float) -> tuple[float, float]:
    """Exceedance rates at the lower and the upper end of the band of an observed P99 of `n`.

    The observed P99 is the order statistic of rank ceil(0.99 n); it lies above y exactly when at least
    n - rank + 1 requests exceed y. Ends are where that has probability Phi(sigma) and 1 - Phi(sigma).
    """
    need = n - math.ceil(0.99 * n) + 1
    return (
        _rate_where(need, n, log_variance, _NORMAL.cdf(sigma)),
        _rate_where(need, n, log_variance, _NORMAL.cdf(-sigma)),
    )


def _rate_where(need: int, n: int, log_variance: float, probability: float) -> float:
    low, high = math.log(1e-9), math.log(0.999)
    for _ in range(32):
        middle = (low + high) / 2
        rate = math.exp(middle)
        if upper_tail(need, n, rate, rho_from_log_variance(rate, log_variance)) < probability:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def _lower_sum(k: int, n: int, rate: float, rho: float) -> float:
    """P(K < k)."""
    term = math.exp(_log_pmf(0, n, rate, rho))
    total = 0.0
    for i in range(k):
        total += term
        term *= _ratio(i, n, rate, rho)
    return total


def _shape(rate: float, rho: float) -> tuple[float, float]:
    concentration = (1 - rho) / rho
    return rate * concentration, (1 - rate) * concentration


def _ratio(i: int, n: int, rate: float, rho: float) -> float:
    """P(K = i + 1) / P(K = i)."""
    ways = (n - i) / (i + 1)
    if rho < 1e-7:
        return ways * rate / (1 - rate)
    a, b = _shape(rate, rho)
    return ways * (a + i) / (b + n - i - 1)


def _log_pmf(k: int, n: int, rate: float, rho: float) -> float:
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    if rho < 1e-7:
        return ways + k * math.log(rate) + (n - k) * math.log1p(-rate)
    a, b = _shape(rate, rho)
    return ways + _log_beta(a + k, b + n - k) - _log_beta(a, b)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
