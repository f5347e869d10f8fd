"""How often the detector cries wolf, and how often it sees a wolf, on seeded simulated traffic.

Sized to be quick; TAILCAUSE_SIMULATED_WINDOWS=100000 gives the figures of detector/README.md
(run this file with `pytest -s` to see them).
"""

import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from detector.config import DecisionConfig, ForecastConfig
from detector.decide import Observed, SeriesJudge
from detector.forecast.tail import TailForecaster
from detector.model import SeriesKey, Signal

WINDOWS = int(os.environ.get("TAILCAUSE_SIMULATED_WINDOWS", "1500"))
KEY = SeriesKey("svc", "m", "", Signal.E2E)
Draw = Callable[[np.random.Generator, int], list[float]]


@dataclass
class Traffic:
    """About `rate` requests a window, log sigma 0.4, with noise that the windows share."""

    rate: float = 40.0
    sigma: float = 0.4
    level_sd: float = 0.0
    correlation: float = 0.0
    burst_share: float = 0.0
    state: float = 0.0

    def window(self, rng: np.random.Generator, slow_down: float = 1.0) -> list[float]:
        """Latencies of one window, seconds."""
        innovation = math.sqrt(1 - self.correlation**2) * self.level_sd
        self.state = self.correlation * self.state + innovation * rng.standard_normal()
        count = rng.poisson(self.rate)
        logs = -2.5 + self.state + self.sigma * rng.standard_normal(count)
        if self.burst_share and rng.random() < self.burst_share:
            hit = rng.random(count) < 0.15
            logs = logs + hit * math.log(2.5)
        return [float(v) for v in np.exp(logs) * slow_down]


NOISE = {
    "independent": Traffic(),
    "15 requests/s": Traffic(rate=30.0),
    "autocorrelated": Traffic(level_sd=0.15, correlation=0.8),
    "bursty": Traffic(level_sd=0.05, correlation=0.5, burst_share=0.05),
    "heavier tail": Traffic(sigma=0.6),
}


def _judge() -> SeriesJudge:
    return SeriesJudge(KEY, DecisionConfig(), lambda: TailForecaster(ForecastConfig()), 180)


def _step(judge: SeriesJudge, values: list[float], index: int) -> bool:
    verdict = judge.judge(Observed(index * 2.0, index * 2.0 + 2, values, 0), incident_open=False)
    return verdict.out_of_band


def _quiet(name: str, windows: int, seed: int) -> tuple[int, int, int]:
    """(windows judged, single windows out of band, incidents) over runs of 300 windows each."""
    rng = np.random.default_rng(seed)
    judged = single = incidents = 0
    while judged < windows:
        judge = _judge()
        traffic = Traffic(**NOISE[name].__dict__)
        for index in range(300):
            ready = judge.ready
            out = _step(judge, traffic.window(rng), index)
            judged += ready
            single += out
            incidents += len(judge.out_of_band_run) == 3
    return judged, single, incidents


def _detect(name: str, slow_down: float, runs: int, seed: int) -> list[int]:
    """Windows from onset to the third in a row, per run; 99 when not within 10."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(runs):
        judge = _judge()
        traffic = Traffic(**NOISE[name].__dict__)
        for index in range(25):
            _step(judge, traffic.window(rng), index)
        delay = 99
        for extra in range(1, 11):
            _step(judge, traffic.window(rng, slow_down), 25 + extra)
            if len(judge.out_of_band_run) >= 3:
                delay = extra
                break
        found.append(delay)
    return found


def _upper_bound(events: int, windows: int) -> float:
    """Return the 95 % upper bound of a rate; the rule of three when nothing happened."""
    exact = {0: 3.0, 1: 4.74, 2: 6.3, 3: 7.75, 4: 9.15, 5: 10.51}  # Poisson, one-sided
    return exact.get(events, events + 1.645 * math.sqrt(events) + 1.9) / windows


@pytest.mark.parametrize("name", NOISE)
def test_quiet_traffic_raises_next_to_no_incident(name: str) -> None:
    """Three in a row out of band happen at most once in 5 000 simulated quiet windows."""
    judged, single, incidents = _quiet(name, WINDOWS, seed=11)
    bound = 1e4 * _upper_bound(incidents, judged)
    sys.stdout.write(
        f"{name}: {judged} quiet windows, {single} out of band, {incidents} incidents, "
        f"<= {bound:.2f} per 10 000\n"
    )
    assert incidents <= max(1, judged // 5000)


@pytest.mark.parametrize("name", NOISE)
def test_a_threefold_slow_down_is_found_within_ten_windows(name: str) -> None:
    """At least 9 of 10 runs see a slow-down of x3 within ten windows of its onset."""
    runs = max(20, WINDOWS // 100)
    found = {}
    for slow_down in (1.5, 2.0, 3.0) if WINDOWS > 10_000 else (3.0,):
        delays = _detect(name, slow_down, runs, seed=5)
        found[slow_down] = sum(delay <= 10 for delay in delays)
        sys.stdout.write(
            f"{name}: x{slow_down:g} found in {found[slow_down]}/{runs}, "
            f"median after {sorted(delays)[runs // 2]} windows\n"
        )
    assert found[3.0] >= 0.9 * runs
