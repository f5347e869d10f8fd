"""Whatever the engine does to serve many, each gets the completion that it would get alone."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from kernels.workload.scheduler import ByShape, Continuous, Dynamic, Policy, Static
from kernels.workload.settings import StepFirst
from tests.support.engine_bench import Bench, ask, reference

SYSTEM = "system:You are a bench. Answer briefly and say what you know.\nuser:"
PROMPTS = (
    "one",
    "two",
    "four",
    SYSTEM + "what is a block?",
    "a prompt of its own that needs several chunks when a step has few tokens to give away",
    SYSTEM + "what is a chunk? Tell me at length.",
    "x",
    SYSTEM + "what is a block?",
    "another prompt, somewhat shorter",
    SYSTEM,
)
TOKENS = (2, 5, 3, 22, 17, 9, 40, 22, 1, 33)
GROWING = ("grow", "still more", "and on", "it goes")
ROUNDING = 1e-3
"""Logits of one sequence differ by about 1e-6 between batches: sums are added up in another order."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for the model."""
    return tmp_path_factory.mktemp("equality")


@pytest.fixture(scope="module")
def expected(cache: Path) -> list[list[int]]:
    """Compute the completions one by one, without a cache."""
    backend = Bench.make(cache).backend
    found = [reference(backend, *each) for each in zip(PROMPTS, TOKENS, strict=True)]
    assert min(margin for _, margin in found) > ROUNDING, "choose prompts that rounding cannot turn"
    return [tokens for tokens, _ in found]


@pytest.mark.parametrize(
    ("policy", "limits"),
    [
        (Continuous(), {}),
        (Continuous(), {"prefix_cache": False}),
        (Continuous(), {"max_running": 1}),
        (Continuous(), {"step_tokens": 20}),
        (Continuous(), {"step_tokens": 20, "prefix_cache": False, "kv_tokens": 192}),
        (Continuous(), {"step_tokens": 500}),
        (Continuous(), {"step_tokens": 500, "prefix_cache": False}),
        (Continuous(), {"step_tokens": 500, "step_first": StepFirst.PREFILL}),
        (Continuous(), {"kv_tokens": 160}),
        (Continuous(), {"kv_tokens": 160, "prefix_cache": False}),
        (Static(wait_s=0.05), {}),
        (Dynamic(preferred=3, max_queue_delay_s=0.02), {}),
        (Dynamic(preferred=4, max_queue_delay_s=0.02), {"kv_tokens": 160}),
        (ByShape(batch_tokens=256, max_queue_delay_s=0.01), {}),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else str(value),
)
def test_completions_are_those_of_a_request_alone(
    cache: Path, expected: list[list[int]], policy: Policy, limits: Mapping[str, object]
) -> None:
    """Policies, chunks, shared beginnings, preemptions and neighbours change no token."""
    bench = Bench.make(cache)
    with bench.engine(policy, **limits) as engine:
        for _ in range(2):
            asked = [ask(engine, *each) for each in zip(PROMPTS, TOKENS, strict=True)]
            assert expected == [one.tokens() for one in asked]
        assert engine.kv_used_ratio == 0


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("step_tokens", [20, 64])
def test_a_preempted_request_gets_the_same_completion(
    cache: Path, prefix_cache: bool, step_tokens: int
) -> None:
    """When KV runs short the newest gives way, is computed anew, and nobody can tell."""
    bench = Bench.make(cache)
    alone = [reference(bench.backend, prompt, 60) for prompt in GROWING]
    assert min(margin for _, margin in alone) > ROUNDING, "choose prompts that rounding cannot turn"
    with bench.engine(kv_tokens=128, prefix_cache=prefix_cache, step_tokens=step_tokens) as engine:
        asked = [ask(engine, prompt, 60) for prompt in GROWING]
        assert [tokens for tokens, _ in alone] == [one.tokens() for one in asked]
    preempted = sum(one.generation.preemptions for one in asked)
    assert preempted == sum(step.preempted for step in bench.steps) > 0
    assert asked[0].generation.preemptions == 0, "the oldest never gives way"


def test_the_least_urgent_gives_way_first(cache: Path) -> None:
    """An older request of lower priority loses its KV before a newer one of higher priority."""
    bench = Bench.make(cache)
    with bench.engine(kv_tokens=64) as engine:
        patient = ask(engine, "p" * 14, 30, priority=1)
        urgent = ask(engine, "u" * 14, 30)
        assert (len(patient.tokens()), len(urgent.tokens())) == (30, 30)
    assert (patient.generation.preemptions, urgent.generation.preemptions) == (1, 0)


def test_a_shared_beginning_is_computed_once(cache: Path) -> None:
    """The second request computes what is its own; whole blocks of the beginning come from the first."""
    bench = Bench.make(cache)
    with bench.engine(step_tokens=500) as engine:
        first = ask(engine, SYSTEM + "first", 2)
        first.tokens()
        second = ask(engine, SYSTEM + "second", 2)
        second.tokens()
    shared = (len(SYSTEM) + 1) // 16 * 16
    assert (first.generation.reused, second.generation.reused) == (0, shared)
    prefilled = [step.prefill_tokens for step in bench.steps if step.prefill_tokens]
    assert prefilled == [len(SYSTEM) + 6, len(SYSTEM) + 7 - shared]


def test_a_whole_prompt_in_the_cache_still_computes_its_last_token(cache: Path) -> None:
    """The logits after a prompt are not kept: 32 known tokens leave the last block to compute."""
    bench = Bench.make(cache)
    with bench.engine() as engine:
        tokens = [ask(engine, "y" * 31, 3).tokens() for _ in range(2)]
    assert tokens[0] == tokens[1]
    assert [step.prefill_tokens for step in bench.steps if step.prefill_tokens] == [32, 16]


def test_a_conversation_finds_what_was_generated(cache: Path) -> None:
    """Blocks that a completion has filled serve the prompt that goes on from it."""
    bench = Bench.make(cache)
    with bench.engine() as engine:
        said = ask(engine, "z" * 10, 40).tokens()
        following = ask(engine, "z" * 10 + bytes(said).decode() + " go on", 2)
        following.tokens()
    assert following.generation.reused == 48
