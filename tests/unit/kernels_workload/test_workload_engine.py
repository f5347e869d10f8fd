"""The engine on the real runtime with a very small model."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.workload.backend import Batch
from kernels.workload.clock import Clock
from kernels.workload.engine import Engine, Limits, Ports, QueueFullError, StoppedError
from kernels.workload.generation import Event, Generation, Step
from kernels.workload.model import ModelSpec, cached_model
from kernels.workload.onnx_backend import OnnxBackend
from kernels.workload.scheduler import Continuous, Policy, Static
from kernels.workload.tokenizer import encode

SPEC = ModelSpec(layers=1, hidden=16, heads=2, context=128)
PROMPTS = ("one", "a longer prompt than that", "three", "x")


@dataclass
class Bench:
    """An engine under test with what it told."""

    backend: OnnxBackend
    steps: list[Step] = field(default_factory=list)
    edges: list[str] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(10**6))
    failed: threading.Event = field(default_factory=threading.Event)
    broken: bool = False

    def open(self) -> None:
        """See a step begin."""
        self.edges.append("open")

    def close(self, step: Step, generations: Sequence[Generation], *, go_on: bool) -> None:
        """Observe a step."""
        self.steps.append(step)
        self.edges.append("close, go on" if go_on else "close")

    def drop(self) -> None:
        """See a step forgotten."""
        self.edges.append("drop")

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Run a step once the gate lets it pass."""
        self.gate.acquire()
        if self.broken:
            raise RuntimeError("the runtime broke")
        self.batches.append(len(batch.past))
        return self.backend.forward(batch)

    def move(self, source: int, target: int, length: int) -> None:
        """Move a row."""
        self.backend.move(source, target, length)


Start = Callable[..., Engine]


@pytest.fixture
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Return a bench on a cached model."""
    path = cached_model(SPEC, Path(tmp_path_factory.getbasetemp()) / "engine-model")
    return Bench(OnnxBackend(path, SPEC, rows=4))


@pytest.fixture
def start(bench: Bench) -> Iterator[Start]:
    """Start engines, and stop them at the end."""
    engines: list[Engine] = []

    def make(policy: Policy | None = None, max_queue: int = 8, kv_tokens: int = 512) -> Engine:
        def deliver(events: Sequence[Event]) -> None:
            for event in events:
                event.generation.sink(event)

        ports = Ports(bench, policy or Continuous(), Clock(), bench, deliver, bench.failed.set)
        engines.append(
            Engine(ports, Limits(max_running=4, max_queue=max_queue, kv_tokens=kv_tokens))
        )
        engines[-1].start()
        return engines[-1]

    yield make
    bench.gate.release(10**6)
    for engine in engines:
        assert engine.stop(timeout_s=20)


def submit(
    engine: Engine, prompt: str, max_tokens: int = 6
) -> tuple[Generation, "queue.Queue[Event]"]:
    """Submit a prompt."""
    inbox: queue.Queue[Event] = queue.Queue()
    generation = Generation(encode(prompt), max_tokens, inbox.put)
    engine.submit(generation)
    return generation, inbox


def tokens_of(inbox: "queue.Queue[Event]") -> list[int]:
    """Wait for a whole completion."""
    tokens: list[int] = []
    while True:
        event = inbox.get(timeout=20)
        tokens.append(event.token)
        if event.finish:
            return tokens


def reference(backend: OnnxBackend, prompt: str, count: int) -> list[int]:
    """Greedy tokens by full prefills alone."""
    tokens = encode(prompt)
    for _ in range(count):
        whole = Batch(0, np.array([tokens]), np.array([0]), np.array([len(tokens)]))
        tokens.append(int(backend.forward(whole)[0].argmax()))
    return tokens[-count:]


@pytest.mark.parametrize(
    "policy", [Continuous(), Static(wait_s=0.05)], ids=["continuous", "static"]
)
def test_concurrent_requests_get_their_own_completions(
    bench: Bench, start: Start, policy: Policy
) -> None:
    """Requests that join, leave and share steps get the tokens that they would get alone."""
    expected = [reference(bench.backend, prompt, 3 + at) for at, prompt in enumerate(PROMPTS)]
    engine = start(policy)
    inboxes = [submit(engine, prompt, 3 + at)[1] for at, prompt in enumerate(PROMPTS)]
    assert expected == [tokens_of(inbox) for inbox in inboxes]


def test_requests_share_decode_steps(bench: Bench, start: Start) -> None:
    """Continuous batching decodes what runs together."""
    engine = start()
    inboxes = [submit(engine, prompt, 12)[1] for prompt in PROMPTS]
    for inbox in inboxes:
        tokens_of(inbox)
    assert max(bench.batches) == 4


def test_static_batches_hold_finished_rows(bench: Bench, start: Start) -> None:
    """Under static batching every decode step is as wide as the batch was at its start."""
    engine = start(Static(wait_s=60))
    inboxes = [
        submit(engine, prompt, count)[1]
        for prompt, count in zip(PROMPTS, (1, 2, 3, 9), strict=True)
    ]
    for inbox in inboxes:
        tokens_of(inbox)
    assert bench.batches == [4] * 9


def test_one_step_begins_where_the_last_one_ended(bench: Bench, start: Start) -> None:
    """There is no time between steps while there is work, and none is open while there is not."""
    engine = start()
    tokens_of(submit(engine, PROMPTS[0], 3)[1])
    assert engine.stop(20)
    busy = [edge for edge in bench.edges if edge != "drop"]
    assert busy == ["open", "close, go on", "open", "close, go on", "open", "close"]
    assert bench.edges[-1] in {"close", "drop"}


def test_steps_are_observed_with_their_shape(bench: Bench, start: Start) -> None:
    """A step's record says how many tokens it prefills or decodes and how much context it reads."""
    tokens_of(submit(start(), "four", 3)[1])
    assert bench.steps == [
        Step(1, prefill_tokens=5, decode_tokens=0, context_tokens=0, kv_used_ratio=0.0),
        Step(1, prefill_tokens=0, decode_tokens=1, context_tokens=5, kv_used_ratio=5 / 512),
        Step(1, prefill_tokens=0, decode_tokens=1, context_tokens=6, kv_used_ratio=6 / 512),
    ]


def test_a_full_queue_refuses(bench: Bench, start: Start) -> None:
    """Beyond the rows and the queue, a request is refused at once."""
    bench.gate = threading.Semaphore(0)
    engine = start(max_queue=2)
    held = [submit(engine, "hold", 2) for _ in range(6)]
    with pytest.raises(QueueFullError):
        submit(engine, "one too many", 2)
    bench.gate.release(10**6)
    assert [len(tokens_of(inbox)) for _, inbox in held] == [2] * 6


def test_requests_wait_for_kv_budget(bench: Bench, start: Start) -> None:
    """Reservations beyond the budget wait, although rows are free."""
    engine = start(kv_tokens=20)
    inboxes = [submit(engine, "tokens", 8)[1] for _ in range(3)]
    for inbox in inboxes:
        tokens_of(inbox)
    assert max(bench.batches) == 1


def test_a_cancelled_request_frees_its_row(bench: Bench, start: Start) -> None:
    """Nothing is computed for a client that has gone."""
    bench.gate = threading.Semaphore(1)
    engine = start()
    generation, inbox = submit(engine, "long", 100)
    inbox.get(timeout=20)
    engine.cancel(generation)
    bench.gate.release(10**6)
    tokens_of(submit(engine, "next", 2)[1])
    assert len(generation.tokens) <= 2
    assert engine.running == 0


def test_times_are_in_order(start: Start) -> None:
    """A request is submitted, scheduled, gets its first token and its last, in that order."""
    generation, inbox = submit(start(), "times", 3)
    tokens_of(inbox)
    times = [
        generation.submitted_ns,
        generation.scheduled_ns,
        generation.first_token_ns,
        generation.last_token_ns,
    ]
    assert times == sorted(times)
    assert times[0] > 0


def test_stopping_finishes_what_is_held(start: Start) -> None:
    """A stop waits for what was accepted and refuses what comes later."""
    engine = start()
    inbox = submit(engine, "finish me", 8)[1]
    assert engine.stop(timeout_s=20)
    assert len(tokens_of(inbox)) == 8
    with pytest.raises(StoppedError):
        submit(engine, "too late")


def test_a_broken_runtime_fails_every_request(
    bench: Bench, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """When a step raises, whoever waits is told and so is the owner."""
    bench.broken = True
    inbox = submit(start(), "doomed")[1]
    assert inbox.get(timeout=20).failed
    assert bench.failed.wait(20)
    assert "engine failed" in caplog.text
