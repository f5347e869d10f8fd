"""Lengths and gaps drawn from the traces fit a small server and its statistics."""

import math
import random
from statistics import fmean, pstdev

import pytest

from kernels.load.azure import CODE, CONVERSATION, LEVELS, TraceQuantiles
from kernels.load.shape import MAX_LOG_SIGMA, GapTable, LengthScale, Target, inverse
from kernels.load.source import TableSource


@pytest.mark.parametrize("trace", [CONVERSATION, CODE], ids=lambda trace: trace.name)
def test_tables_are_quantile_functions(trace: TraceQuantiles) -> None:
    """One value for each level, never falling."""
    for table in (trace.input_tokens, trace.output_tokens, trace.gaps):
        assert len(table) == len(LEVELS)
        assert list(table) == sorted(table)


def test_inverse_meets_the_table_and_is_linear_between() -> None:
    """The inverse transform at a level is the quantile of that level."""
    table = [10.0 * level for level in LEVELS]

    assert inverse(table, 0.0) == 0.0
    assert inverse(table, 1.0) == 10.0
    assert inverse(table, 0.5) == pytest.approx(5.0)
    assert inverse(table, 0.525) == pytest.approx(5.25)


@pytest.mark.parametrize("trace", [CONVERSATION, CODE], ids=lambda trace: trace.name)
def test_lengths_stay_in_range_with_small_spread(trace: TraceQuantiles) -> None:
    """Prompts 40-128, outputs 8-24, log-sigma at most 0.4."""
    rng, source = random.Random(1), TableSource(trace)
    draws = [source.draw(rng) for _ in range(4_000)]

    prompts = [draw.prompt_tokens for draw in draws]
    outputs = [draw.output_tokens for draw in draws]
    assert (min(prompts) >= 40, max(prompts) <= 128) == (True, True)
    assert (min(outputs) >= 8, max(outputs) <= 24) == (True, True)
    for lengths in (prompts, outputs):
        sigma = pstdev([math.log(length) for length in lengths])
        assert 0.1 < sigma <= MAX_LOG_SIGMA


def test_gaps_have_mean_one_and_the_reported_spread() -> None:
    """The cut tail is paid back in the mean, and the CV is that of the drawn gaps."""
    rng, table = random.Random(2), GapTable(CONVERSATION.gaps)
    gaps = [table.draw(rng) for _ in range(20_000)]

    assert fmean(gaps) == pytest.approx(1.0, abs=0.03)
    assert pstdev(gaps) == pytest.approx(table.cv, abs=0.03)
    assert max(gaps) < 4


def test_a_constant_length_keeps_its_exponent() -> None:
    """Nothing to compress gives no division by zero."""
    scale = LengthScale.fit([7.0, 7.0, 7.0], Target(1, 10, 100))

    assert scale.exponent == 1.0
    assert scale.apply(7.0) == 10


def test_scaling_keeps_the_order() -> None:
    """A longer request of the trace is never a shorter one here."""
    scale = LengthScale.fit([1, 10, 100, 1_000], Target(40, 72, 128))
    lengths = [scale.apply(tokens) for tokens in (0, 1, 5, 50, 500, 5_000)]

    assert lengths == sorted(lengths)
