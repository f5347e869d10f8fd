"""What the next step holds: who decodes, which chunks of which prompts are prefilled, who must give way."""

from collections.abc import Sequence
from dataclasses import dataclass

from kernels.workload.generation import Generation
from kernels.workload.kv_blocks import BLOCK_TOKENS
from kernels.workload.kv_memory import KvMemory
from kernels.workload.rows import Rows
from kernels.workload.scheduler import Policy
from kernels.workload.settings import PrefillOrder, StepFirst
from kernels.workload.waiting import Waiting


@dataclass(frozen=True)
class Limits:
    """How much the engine takes on at a time; `step_tokens` is at least a block more than `max_running`."""

    max_running: int
    max_queue: int
    kv_tokens: int
    step_tokens: int
    step_first: StepFirst = StepFirst.DECODE
    prefill_order: PrefillOrder = PrefillOrder.ARRIVAL
    prefix_cache: bool = True


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next `count` tokens of a request that is being prefilled."""

    generation: Generation
    count: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One step; `groups` of chunks are one call each."""

    decode: bool
    groups: Sequence[Sequence[Chunk]]
    preempted: int

    @property
    def has_work(self) -> bool:
        """Whether there is anything to do."""
        return self.decode or bool(self.groups)


def chunk_of(rest: int, left: int) -> int:
    """Tokens of a prompt with `rest` to go that a step with `left` to give takes: all of it or whole blocks.

    A handful of tokens costs a call of the model like a block does, and only full blocks can be used again.
    """
    return rest if rest <= left else left // BLOCK_TOKENS * BLOCK_TOKENS


class Planner:
    """Turns decisions of the policy into steps within the budgets; in the engine's thread, its queue locked."""

    def __init__(self, limits: Limits, policy: Policy, rows: Rows, kv: KvMemory) -> None:
        self._limits = limits
        self._policy = policy
        self._rows = rows
        self._kv = kv
        self._preempted = 0

    def make_room(self, waiting: Waiting) -> None:
        """See that every request that decodes has KV for its next token; where it is short, the last ones lose theirs.

        Those who lose it are queued, and computed anew when there is room: their completion is the same.
        """
        needy = [one for one in self._rows.decoding if not self._kv.has_room(one)]
        for one in sorted(needy, key=_rank):
            while one.blocks and not self._kv.grow(one):
                self._preempt(max(self._rows, key=_rank), waiting)

    def plan(self, wanted: Sequence[Generation], waiting: Waiting) -> Plan:
        """Fill a step with those who decode, the prompt that is half done, and as many of `wanted` as fit."""
        prefill_first = self._limits.step_first is StepFirst.PREFILL
        left = self._limits.step_tokens - (0 if prefill_first else len(self._rows.decoding))
        groups = self._together(wanted) if self._policy.together else self._chunks(wanted, left)
        waiting.remove(one for one in wanted if one.blocks)
        decode = bool(self._rows.decoding) and not (prefill_first and groups)
        preempted, self._preempted = self._preempted, 0
        return Plan(decode, groups, preempted)

    def _preempt(self, one: Generation, waiting: Waiting) -> None:
        self._rows.leave(one)
        self._kv.release(one)
        one.cached = 0
        one.preemptions += 1
        self._preempted += 1
        waiting.add(one)

    def _together(self, wanted: Sequence[Generation]) -> list[list[Chunk]]:
        joined = []
        for one in wanted:
            if not self._admit(one):
                break
            joined.append(Chunk(one, one.length - one.cached))
        return [joined] if joined else []

    def _chunks(self, wanted: Sequence[Generation], left: int) -> list[list[Chunk]]:
        groups = []
        for one in (*self._rows.prefilling, *wanted):
            if left < BLOCK_TOKENS or not (one.blocks or self._admit(one)):
                break  # in order: whoever is passed over once would be passed over for ever
            count = chunk_of(one.length - one.cached, left)
            groups.append([Chunk(one, count)])
            left -= count
        return groups

    def _admit(self, one: Generation) -> bool:
        """Give a request KV and a row; it has a row to have, the policy has looked."""
        whole = self._policy.keeps_batch
        if not self._kv.admit(one, one.most_tokens if whole else one.length + 1):
            return False
        self._kv.restore(one, self._rows.join(one))
        return True


def _rank(one: Generation) -> tuple[int, int]:
    """Whoever ranks highest gives way first: the least urgent, of these the newest."""
    return one.priority, one.number
