"""The engine on the real runtime with a very small model."""

import threading
from pathlib import Path

import pytest

from kernels.workload.engine import QueueFullError, StoppedError, TooLongError
from kernels.workload.scheduler import Static
from kernels.workload.settings import PrefillOrder, StepFirst
from tests.support.engine_bench import Bench, ask, eventually

PROMPTS = ("one", "a longer prompt than that", "three", "x")


@pytest.fixture
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Return a bench on a cached model."""
    return Bench.make(Path(tmp_path_factory.getbasetemp()) / "engine-model")


def test_requests_share_decode_steps(bench: Bench) -> None:
    """Continuous batching decodes what runs together."""
    with bench.engine() as engine:
        for asked in [ask(engine, prompt, 12) for prompt in PROMPTS]:
            asked.tokens()
    assert max(bench.batches) == 4


def test_static_batches_hold_finished_rows(bench: Bench) -> None:
    """Under static batching every decode step is as wide as the batch was at its start."""
    with bench.engine(Static(wait_s=60)) as engine:
        lengths = zip(PROMPTS, (1, 2, 3, 9), strict=True)
        for asked in [ask(engine, prompt, count) for prompt, count in lengths]:
            asked.tokens()
    assert bench.batches == [4] * 9


def test_padding_and_finished_rows_are_computed_and_not_useful(bench: Bench) -> None:
    """A static batch computes rows times width: of 4 · 26 prompt tokens 38 are asked for, of 4 · 8 decoded ones 11."""
    with bench.engine(Static(wait_s=60)) as engine:
        lengths = zip(PROMPTS, (1, 2, 3, 9), strict=True)
        for asked in [ask(engine, prompt, count) for prompt, count in lengths]:
            asked.tokens()
    assert sum(step.computed_tokens for step in bench.steps) == 4 * 26 + 4 * 8
    assert sum(step.useful_tokens for step in bench.steps) == 38 + 11


def test_continuous_batches_compute_nothing_in_vain(bench: Bench) -> None:
    """Whoever is finished leaves, and prompts are computed apart."""
    with bench.engine() as engine:
        for asked in [ask(engine, prompt, 5) for prompt in PROMPTS]:
            asked.tokens()
    useful = sum(step.useful_tokens for step in bench.steps)
    assert sum(step.computed_tokens for step in bench.steps) == useful == 38 + 4 * 4


def test_one_step_begins_where_the_last_one_ended(bench: Bench) -> None:
    """There is no time between steps while there is work, and none is open while there is not."""
    with bench.engine() as engine:
        ask(engine, PROMPTS[0], 3).tokens()
    busy = [edge for edge in bench.edges if edge != "drop"]
    assert busy == ["open", "close, go on", "open", "close, go on", "open", "close"]
    assert bench.edges[-1] in {"close", "drop"}


def test_steps_are_observed_with_their_shape(bench: Bench) -> None:
    """A step's record says how many tokens it prefills or decodes and how much context it reads."""
    with bench.engine() as engine:
        ask(engine, "four", 3).tokens()
    shapes = [
        (step.batch_size, step.prefill_tokens, step.decode_tokens, step.context_tokens)
        for step in bench.steps
    ]
    assert shapes == [(1, 5, 0, 0), (1, 0, 1, 5), (1, 0, 1, 6)]
    assert {step.kv_used_ratio for step in bench.steps} == {16 / 512}


def test_long_prompts_are_prefilled_in_chunks_between_decodes(bench: Bench) -> None:
    """Whoever runs gets its token in every step; the prompt gets the rest of the budget, in whole blocks."""
    bench.gate = threading.Semaphore(1)
    with bench.engine(step_tokens=36) as engine:
        running = ask(engine, "runs", 12)
        running.inbox.get(timeout=20)
        long = ask(engine, "p" * 99, 2)
        bench.gate.release(10**6)
        running.tokens()
        long.tokens()
    chunked = [(one.decode_tokens, one.prefill_tokens) for one in bench.steps if one.prefill_tokens]
    assert chunked == [(0, 5), (1, 32), (1, 32), (1, 32), (1, 4)]
    assert all(one.decode_tokens + one.prefill_tokens <= 36 for one in bench.steps)


def test_prefill_first_lets_nobody_decode_meanwhile(bench: Bench) -> None:
    """The other order: a prompt has the whole step, those who run wait."""
    bench.gate = threading.Semaphore(1)
    with bench.engine(step_tokens=36, step_first=StepFirst.PREFILL) as engine:
        running = ask(engine, "runs", 12)
        running.inbox.get(timeout=20)
        long = ask(engine, "p" * 99, 2)
        bench.gate.release(10**6)
        running.tokens()
        long.tokens()
    chunked = [(one.decode_tokens, one.prefill_tokens) for one in bench.steps if one.prefill_tokens]
    assert chunked == [(0, 5), (0, 32), (0, 32), (0, 36)]


@pytest.mark.parametrize(
    ("order", "expected"),
    [(PrefillOrder.ARRIVAL, ["b", "a", "c"]), (PrefillOrder.SHORTEST, ["b", "c", "a"])],
)
def test_the_queue_has_its_order(bench: Bench, order: PrefillOrder, expected: list[str]) -> None:
    """The urgent come first, then the order that was chosen decides."""
    bench.gate = threading.Semaphore(0)
    with bench.engine(max_running=1, prefill_order=order) as engine:
        held = ask(engine, "hold", 1)
        assert eventually(lambda: engine.running == 1)
        asked = {
            "a": ask(engine, "a" * 40, 1),
            "b": ask(engine, "b" * 60, 1, priority=-1),
            "c": ask(engine, "c" * 20, 1),
        }
        bench.gate.release(10**6)
        held.tokens()
        for one in asked.values():
            one.tokens()
    times = {name: one.generation.scheduled_ns for name, one in asked.items()}
    assert expected == sorted(times, key=times.__getitem__)


def test_a_full_queue_refuses(bench: Bench) -> None:
    """Beyond the rows and the queue, a request is refused at once."""
    bench.gate = threading.Semaphore(0)
    with bench.engine(max_queue=2) as engine:
        held = [ask(engine, "hold", 2) for _ in range(6)]
        with pytest.raises(QueueFullError):
            ask(engine, "one too many", 2)
        bench.gate.release(10**6)
        assert [len(asked.tokens()) for asked in held] == [2] * 6


def test_what_could_never_fit_is_refused(bench: Bench) -> None:
    """A request that may need more KV than there is would wait for ever."""
    with bench.engine(kv_tokens=32) as engine, pytest.raises(TooLongError):
        ask(engine, "x" * 20, 12)


def test_requests_wait_for_kv(bench: Bench) -> None:
    """Without a block for its prompt a request waits, although rows are free."""
    with bench.engine(kv_tokens=20) as engine:
        for asked in [ask(engine, "tokens", 8) for _ in range(3)]:
            asked.tokens()
    assert max(bench.batches) == 1


def test_a_cancelled_request_frees_its_row(bench: Bench) -> None:
    """Nothing is computed for a client that has gone."""
    bench.gate = threading.Semaphore(1)
    with bench.engine() as engine:
        gone = ask(engine, "long", 100)
        gone.inbox.get(timeout=20)
        engine.cancel(gone.generation)
        bench.gate.release(10**6)
        ask(engine, "next", 2).tokens()
        assert len(gone.generation.tokens) <= 2
        assert eventually(lambda: engine.running == 0)
        assert engine.kv_used_ratio == 0


def test_a_request_cancelled_in_the_middle_of_its_prefill_frees_its_row(bench: Bench) -> None:
    """The rows of those that decode, and what they hold, stay."""
    bench.gate = threading.Semaphore(0)
    with bench.engine(step_tokens=36) as engine:
        running = ask(engine, "runs", 20)
        long = ask(engine, "p" * 99, 2)
        bench.gate.release(4)
        assert eventually(lambda: len(bench.calls) == 4)
        engine.cancel(long.generation)
        bench.gate.release(10**6)
        assert len(running.tokens()) == 20
    assert not long.generation.tokens


def test_times_are_in_order(bench: Bench) -> None:
    """A request is submitted, scheduled, gets its first token and its last, in that order."""
    with bench.engine() as engine:
        asked = ask(engine, "times", 3)
        asked.tokens()
    one = asked.generation
    times = [one.submitted_ns, one.scheduled_ns, one.first_token_ns, one.last_token_ns]
    assert times == sorted(times)
    assert times[0] > 0


def test_stopping_finishes_what_is_held(bench: Bench) -> None:
    """A stop waits for what was accepted and refuses what comes later."""
    with bench.engine() as engine:
        asked = ask(engine, "finish me", 8)
        assert engine.stop(timeout_s=20)
        assert len(asked.tokens()) == 8
        with pytest.raises(StoppedError):
            ask(engine, "too late")


def test_a_broken_runtime_fails_every_request(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """When a step raises, whoever waits is told and so is the owner."""
    bench.broken = True
    with bench.engine() as engine:
        assert ask(engine, "doomed").events()[-1].failed
        assert bench.failed.wait(20)
    assert "engine failed" in caplog.text


def test_a_stop_sequence_ends_a_completion(bench: Bench) -> None:
    """The engine stops computing at the first of the sequences that comes up."""
    with bench.engine() as engine:
        free = ask(engine, "stop me", 12).tokens()
        stopped = ask(engine, "stop me", 12, stops=(tuple(free[3:5]), (1, 2)))
        events = stopped.events()
    assert [event.token for event in events] == free[:5]
    assert events[-1].finish == "stop"
