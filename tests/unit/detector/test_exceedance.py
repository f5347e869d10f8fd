"""The beta-binomial tail against direct sums and simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.forecast.exceedance import (
    MAX_SIGMA,
    p99_band_rates,
    rho_from_log_variance,
    sigma_of_count,
    upper_tail,
)


@pytest.mark.parametrize(
    ("k", "n", "rate"), [(0, 30, 0.01), (1, 30, 0.01), (3, 40, 0.012), (40, 200, 0.3)]
)
def test_without_overdispersion_it_is_the_binomial(k: int, n: int, rate: float) -> None:
    """P(K >= k) equals the sum of binomial terms."""
    exact = math.fsum(math.comb(n, i) * rate**i * (1 - rate) ** (n - i) for i in range(k, n + 1))
    assert upper_tail(k, n, rate, 0.0) == pytest.approx(exact, rel=1e-9)


def test_overdispersed_counts_match_a_simulation() -> None:
    """P(K >= 5) of 50 at rate 0.05 and rho 0.04 agrees with two million draws."""
    rng = np.random.default_rng(3)
    scale = (1 - 0.04) / 0.04
    rates = rng.beta(0.05 * scale, 0.95 * scale, 2_000_000)
    share = float((rng.binomial(50, rates) >= 5).mean())
    assert upper_tail(5, 50, 0.05, 0.04) == pytest.approx(share, abs=0.001)


@given(
    n=st.integers(1, 3000),
    share=st.floats(0, 1),
    rate=st.floats(0.001, 0.5),
    variance=st.floats(0, 3),
)
def test_sigma_is_finite_and_grows_with_the_count(
    n: int, share: float, rate: float, variance: float
) -> None:
    """One more exceedance never makes a window look less unusual."""
    k = int(share * n)
    rho = rho_from_log_variance(rate, variance)
    fewer, more = sigma_of_count(k, n, rate, rho), sigma_of_count(min(k + 1, n), n, rate, rho)
    assert -MAX_SIGMA <= fewer <= more + 1e-9 <= MAX_SIGMA + 1e-9


def test_a_typical_count_is_near_zero_sigma() -> None:
    """The mid-p of an unremarkable count sits in the middle."""
    assert abs(sigma_of_count(10, 1000, 0.01, 0.0)) < 0.2


def test_overdispersion_makes_a_count_less_unusual() -> None:
    """Bursty traffic needs more exceedances for the same sigma."""
    assert sigma_of_count(4, 40, 0.01, 0.02) < sigma_of_count(4, 40, 0.01, 0.0)


def test_the_band_of_a_maximum_is_exact() -> None:
    """With n = 40 the P99 is the maximum: P(max <= y) = (1 - s)^40."""
    low, high = p99_band_rates(40, 0.0, 2.5)
    assert (1 - high) ** 40 == pytest.approx(0.99379, abs=1e-4)
    assert (1 - low) ** 40 == pytest.approx(0.00621, abs=1e-4)
