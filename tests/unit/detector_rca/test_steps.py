"""The cost of a step at equal work."""

import random

import pytest

from detector.rca.requests import Step
from detector.rca.steps import StepModel


def steps(count: int, speed: float = 1.0, batch: int = 4, seed: int = 1) -> list[Step]:
    rng = random.Random(seed)
    found = []
    for index in range(count):
        prefill = rng.choice([0, 0, 0, 40, 80])
        size = rng.randint(1, batch)
        cost = (0.002 + 0.0005 * size + 0.0001 * prefill) * speed * rng.uniform(0.95, 1.05)
        found.append(Step(index, index + cost, size, prefill, 0 if prefill else size, 0))
    return found


def learned() -> StepModel:
    model = StepModel.learn(steps(500))
    assert model is not None
    return model


def test_same_speed_is_one() -> None:
    """Steps at the old speed show no slow-down."""
    assert learned().slowdown(steps(300, seed=2)) == pytest.approx(1.0, abs=0.02)


def test_slow_down_is_found() -> None:
    """Steps at half the speed show a slow-down of two."""
    assert learned().slowdown(steps(300, speed=2.0, seed=2)) == pytest.approx(2.0, rel=0.02)


def test_more_work_is_no_slow_down() -> None:
    """Batches three times as large take longer without being slower."""
    assert learned().slowdown(steps(300, batch=12, seed=2)) == pytest.approx(1.0, abs=0.03)


def test_a_pause_in_the_baseline_is_not_learned() -> None:
    """One step that stood still for a second does not raise the expected cost."""
    paused = [*steps(500), Step(0, 1.0, 2, 0, 2, 0)]
    model = StepModel.learn(paused)
    assert model is not None
    assert model.slowdown(steps(300, seed=2)) == pytest.approx(1.0, abs=0.03)


def test_too_few_steps_teach_nothing() -> None:
    """Fewer than 50 steps give no model."""
    assert StepModel.learn(steps(49)) is None


def test_constant_work_is_fitted() -> None:
    """Steps that all do the same are no singular system."""
    same = [Step(i, i + 0.01, 1, 0, 1, 10) for i in range(60)]
    model = StepModel.learn(same)
    assert model is not None
    assert model.slowdown(same) == pytest.approx(1.0, abs=0.01)
