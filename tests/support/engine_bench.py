"""An engine on the real runtime with a very small model, and what it did."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernels.workload.backend import Batch
from kernels.workload.clock import Clock
from kernels.workload.engine import Engine, Ports
from kernels.workload.generation import Event, Generation, Step, Task
from kernels.workload.model import ModelSpec, cached_model
from kernels.workload.onnx_backend import OnnxBackend
from kernels.workload.planner import Limits
from kernels.workload.scheduler import Continuous, Policy
from kernels.workload.tokenizer import encode

SPEC = ModelSpec(layers=1, hidden=16, heads=2, context=192)
ROWS = 4
LIMITS = Limits(max_running=ROWS, max_queue=32, kv_tokens=512, step_tokens=64)
WAIT_S = 30


@dataclass
class Bench:
    """A backend and an observer that remember; `gate` lets one call of the model pass per permit."""

    backend: OnnxBackend
    steps: list[Step] = field(default_factory=list)
    edges: list[str] = field(default_factory=list)
    calls: list[Batch] = field(default_factory=list)
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(10**6))
    failed: threading.Event = field(default_factory=threading.Event)
    broken: bool = False

    @classmethod
    def make(cls, cache: Path) -> "Bench":
        """Make a bench on a cached model."""
        return cls(OnnxBackend(cached_model(SPEC, cache), SPEC, rows=ROWS, blocks=64))

    @property
    def batches(self) -> list[int]:
        """Rows of every call of the model."""
        return [len(call.past) for call in self.calls]

    def open(self) -> None:
        """See a step begin."""
        self.edges.append("open")

    def close(self, step: Step, *, go_on: bool) -> None:
        """See a step end."""
        self.edges.append("close, go on" if go_on else "close")

    def drop(self) -> None:
        """See a step forgotten."""
        self.edges.append("drop")

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Run a call once the gate lets it pass."""
        self.gate.acquire()
        if self.broken:
            raise RuntimeError("the runtime broke")
        self.calls.append(batch)
        return self.backend.forward(batch)

    def move(self, source: int, target: int, length: int) -> None:
        """Move a row."""
        self.backend.move(source, target, length)

    def save(self, row: int, start: int, block: int) -> None:
        """Save a block."""
        self.backend.save(row, start, block)

    def load(self, row: int, blocks: Sequence[int], held: int) -> None:
        """Load blocks."""
        self.backend.load(row, blocks, held)

    @contextmanager
    def engine(self, policy: Policy | None = None, **limits: object) -> Iterator[Engine]:
        """Run an engine, and stop it at the end."""
        ports = Ports(
            backend=self,
            policy=policy or Continuous(),
            clock=Clock(),
            observer=self,
            count=self.steps.append,
            deliver=_deliver,
            failed=self.failed.set,
        )
        engine = Engine(ports, replace(LIMITS, **limits))  # type: ignore[arg-type]
        engine.start()
        try:
            yield engine
        finally:
            self.gate.release(10**6)
            assert engine.stop(timeout_s=WAIT_S)


@dataclass
class Asked:
    """A request under way."""

    generation: Generation
    inbox: "queue.Queue[Event]"

    def events(self) -> list[Event]:
        """Wait for the end; everything that was told."""
        events: list[Event] = []
        while not events or not (events[-1].finish or events[-1].failed):
            events.append(self.inbox.get(timeout=WAIT_S))
        return events

    def tokens(self) -> list[int]:
        """Wait for a whole completion."""
        return [event.token for event in self.events()]


def ask(engine: Engine, prompt: str, max_tokens: int = 6, **task: object) -> Asked:
    """Submit a prompt."""
    inbox: queue.Queue[Event] = queue.Queue()
    generation = Generation(Task(encode(prompt), max_tokens, **task), inbox.put)  # type: ignore[arg-type]
    engine.submit(generation)
    return Asked(generation, inbox)


def reference(backend: OnnxBackend, prompt: str, count: int) -> tuple[list[int], float]:
    """Greedy tokens by full prefills alone, and by how much the least certain one was ahead of the next best."""
    tokens, margin = encode(prompt), float("inf")
    for _ in range(count):
        whole = Batch(0, np.array([tokens]), np.array([0]), np.array([len(tokens)]))
        logits = backend.forward(whole)[0]
        second, best = np.sort(logits)[-2:]
        margin = min(margin, float(best - second))
        tokens.append(int(logits.argmax()))
    return tokens[-count:], margin


def eventually(condition: Callable[[], bool]) -> bool:
    """Wait for what another thread does."""
    event = threading.Event()
    for _ in range(WAIT_S * 100):
        if condition():
            return True
        event.wait(0.01)
    return condition()


def _deliver(events: Sequence[Event]) -> None:
    for event in events:
        event.generation.sink(event)
