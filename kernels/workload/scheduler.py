"""Batching policies: when do waiting requests join a batch, and when do finished ones leave it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kernels.workload.generation import Shape
from kernels.workload.settings import Batching, Settings

SHORTEST_BUCKET = 16


@dataclass(frozen=True, slots=True)
class Load:
    """What a policy sees before each step; `waiting` in the order of the queue."""

    waiting: Sequence[Shape]
    running: int
    free_rows: int
    oldest_wait_s: float


@dataclass(frozen=True, slots=True)
class Decision:
    """Places in the queue of those who may join now; else how long to wait before asking again."""

    admit: Sequence[int] = ()
    ask_again_s: float | None = None


class Policy(Protocol):
    """One way of batching."""

    @property
    def keeps_batch(self) -> bool:
        """Whether finished requests hold their row, and all the KV that they might need, until the batch is finished."""

    @property
    def together(self) -> bool:
        """Whether those who join are prefilled at once, padded, and not in chunks within the token budget."""

    def decide(self, load: Load) -> Decision:
        """Say who may join now; pure."""


class Continuous:
    """A request joins at the next step and leaves when finished (Orca, Yu et al., OSDI 2022).

    The engine prefills as much of those that may join as the token budget of the step leaves
    (chunked prefill, Agrawal et al., "Sarathi-Serve", OSDI 2024).
    """

    keeps_batch = False
    together = False

    def decide(self, load: Load) -> Decision:
        """Admit while rows are free."""
        return Decision(range(min(len(load.waiting), load.free_rows)))


class Static:
    """A batch is collected, prefilled together and run to its end before the next one starts."""

    keeps_batch = True
    together = True

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s

    def decide(self, load: Load) -> Decision:
        """Admit a full batch, or what has come once the oldest has waited long enough."""
        if load.running:
            return Decision()
        return _collect(load, load.free_rows, range(len(load.waiting)), self._wait_s)


class Dynamic:
    """A batch starts at its preferred size or after a delay, as Triton's dynamic batcher has it; nobody joins later.

    Whoever is finished leaves, so that a batch gets cheaper towards its end.
    """

    keeps_batch = False
    together = True

    def __init__(self, preferred: int, max_queue_delay_s: float) -> None:
        self._preferred = preferred
        self._delay_s = max_queue_delay_s

    def decide(self, load: Load) -> Decision:
        """Admit what waits at the preferred size, or once the oldest has waited for the delay."""
        if load.running:
            return Decision()
        wanted = min(self._preferred, load.free_rows)
        return _collect(load, wanted, range(len(load.waiting)), self._delay_s)


class ByShape:
    """Batches of requests of one shape: nothing is padded by much, and large ones come in small batches.

    A shape is the prompt's length up to the next power of two, the number of steps, and whether guidance doubles the work.
    """

    keeps_batch = False
    together = True

    def __init__(self, batch_tokens: int, max_queue_delay_s: float) -> None:
        self._batch_tokens = batch_tokens
        self._delay_s = max_queue_delay_s

    def decide(self, load: Load) -> Decision:
        """Admit those of the first one's shape, up to the size that this shape has."""
        if load.running or not load.waiting:
            return Decision()
        first = _bucket(load.waiting[0])
        alike = [at for at, shape in enumerate(load.waiting) if _bucket(shape) == first]
        return _collect(load, self.size(load.waiting[0]), alike, self._delay_s)

    def size(self, shape: Shape) -> int:
        """Return the batch size of a shape."""
        tokens, _, guided = _bucket(shape)
        return max(1, self._batch_tokens // (tokens * (2 if guided else 1)))


def _bucket(shape: Shape) -> tuple[int, int, bool]:
    length = max(SHORTEST_BUCKET, 1 << (shape.tokens - 1).bit_length())
    return length, shape.steps, shape.guided


def _collect(load: Load, wanted: int, places: Sequence[int], wait_s: float) -> Decision:
    """Admit `wanted` of those at `places`, or fewer once the oldest request has waited for `wait_s`."""
    if not places:
        return Decision()
    wanted = min(wanted, load.free_rows)
    left_s = wait_s - load.oldest_wait_s
    if len(places) >= wanted or left_s <= 0:
        return Decision(places[:wanted])
    return Decision(ask_again_s=left_s)


POLICIES: Mapping[Batching, Callable[[Settings], Policy]] = {
    Batching.CONTINUOUS: lambda _: Continuous(),
    Batching.STATIC: lambda settings: Static(settings.batch_wait_s),
    Batching.DYNAMIC: lambda settings: Dynamic(
        settings.preferred_batch, settings.max_queue_delay_s
    ),
    Batching.SHAPE: lambda settings: ByShape(settings.shape_tokens, settings.max_queue_delay_s),
}
