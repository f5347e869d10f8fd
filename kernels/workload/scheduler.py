"""Batching policies: when do waiting requests join a batch, and when do finished ones leave it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kernels.workload.settings import Batching, Settings


@dataclass(frozen=True, slots=True)
class Load:
    """What a policy sees before each step."""

    waiting: int
    running: int
    free_rows: int
    oldest_wait_s: float


@dataclass(frozen=True, slots=True)
class Decision:
    """How many waiting requests to prefill now; else how long to wait before asking again."""

    admit: int
    ask_again_s: float | None = None


class Policy(Protocol):
    """One way of batching."""

    @property
    def keeps_batch(self) -> bool:
        """Whether finished requests hold their row until the whole batch is finished."""

    def decide(self, load: Load) -> Decision:
        """Say what joins now; pure."""


class Continuous:
    """A request joins at the next step and leaves when finished (Orca, Yu et al., OSDI 2022).

    One prompt is prefilled per step: a prefill is bound by arithmetic, so that several at once would
    save nothing and hold up the tokens of those that run.
    """

    keeps_batch = False

    def decide(self, load: Load) -> Decision:
        """Admit one request while a row is free."""
        return Decision(admit=min(1, load.waiting, load.free_rows))


class Static:
    """A batch is collected, prefilled together and run to its end before the next one starts."""

    keeps_batch = True

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s

    def decide(self, load: Load) -> Decision:
        """Admit a full batch, or what has come once the oldest has waited long enough."""
        if load.running or not load.waiting:
            return Decision(admit=0)
        left_s = self._wait_s - load.oldest_wait_s
        if load.waiting >= load.free_rows or left_s <= 0:
            return Decision(admit=min(load.waiting, load.free_rows))
        return Decision(admit=0, ask_again_s=left_s)


POLICIES: Mapping[Batching, Callable[[Settings], Policy]] = {
    Batching.CONTINUOUS: lambda _: Continuous(),
    Batching.STATIC: lambda settings: Static(settings.batch_wait_s),
}
