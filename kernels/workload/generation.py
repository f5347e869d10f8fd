"""One request inside the engine, and what the engine tells of it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kernels.workload.tokenizer import EOS

NO_TIME = 0
Stops = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """How much work a request asks for: what batches by shape group by.

    `steps` and `guided` are hints of models that denoise: steps per image, and whether guidance doubles the batch.
    """

    tokens: int
    steps: int = 0
    guided: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """What is asked of the engine; equal prompts and stops give equal completions, whatever the rest says."""

    prompt: list[int]
    max_tokens: int
    stop_at_eos: bool = False
    stops: Stops = ()
    priority: int = 0
    steps: int = 0
    guided: bool = False


@dataclass(eq=False, slots=True)
class Generation:
    """A prompt on its way to a completion; the engine's thread writes it until it is finished.

    `sink` gets each Event in the thread that the engine's `deliver` chooses. `trace` is whatever the
    step observer wants to link its steps to.
    """

    task: Task
    sink: Callable[["Event"], None]
    trace: object = None
    number: int = 0
    tokens: list[int] = field(default_factory=list)
    cached: int = 0
    blocks: list[int] = field(default_factory=list)
    block_names: list[bytes] = field(default_factory=list)
    reused: int = 0
    preemptions: int = 0
    done: bool = False
    cancelled: bool = False
    submitted_ns: int = NO_TIME
    scheduled_ns: int = NO_TIME
    first_token_ns: int = NO_TIME
    last_token_ns: int = NO_TIME

    @property
    def prompt(self) -> list[int]:
        """Tokens that came in."""
        return self.task.prompt

    @property
    def priority(self) -> int:
        """Lower is more urgent."""
        return self.task.priority

    @property
    def sequence(self) -> list[int]:
        """The prompt and what has been generated; after a preemption all of it is prefilled again."""
        return self.task.prompt + self.tokens

    @property
    def length(self) -> int:
        """Tokens of the sequence."""
        return len(self.task.prompt) + len(self.tokens)

    @property
    def most_tokens(self) -> int:
        """Tokens that the sequence may come to have."""
        return len(self.task.prompt) + self.task.max_tokens

    @property
    def shape(self) -> Shape:
        """Return what batches by shape go by."""
        return Shape(len(self.task.prompt), self.task.steps, self.task.guided)

    def accept(self, token: int, now_ns: int) -> str:
        """Take the next token; return the OpenAI finish reason when it is the last one."""
        self.tokens.append(token)
        self.first_token_ns = self.first_token_ns or now_ns
        self.last_token_ns = now_ns
        finish = ""
        if (self.task.stop_at_eos and token == EOS) or stopped_by(self.tokens, self.task.stops):
            finish = "stop"
        elif len(self.tokens) >= self.task.max_tokens:
            finish = "length"
        self.done = bool(finish)
        return finish


def stopped_by(tokens: list[int], stops: Stops) -> tuple[int, ...]:
    """Return the stop sequence that the tokens end with; nothing where there is none."""
    for stop in stops:
        if tokens[-1] == stop[-1] and tuple(tokens[-len(stop) :]) == stop:
            return stop
    return ()


@dataclass(frozen=True, slots=True)
class Event:
    """One new token; `finish` is the OpenAI finish reason with the last one."""

    generation: Generation
    token: int
    finish: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One run of the model within a step: a decode of everything that runs, or a chunk of prompts."""

    prefill: bool
    start_ns: int
    end_ns: int
    tokens: int
    context_tokens: int
    served: tuple[Generation, ...]
    computed_tokens: int = 0
    """Rows times width: the padding of short prompts counts."""
    useful_tokens: int = 0
    """Of these, what somebody waits for: neither padding nor rows whose request is finished."""


@dataclass(frozen=True, slots=True)
class Step:
    """What was in one engine step."""

    calls: tuple[Call, ...]
    kv_used_ratio: float
    preempted: int = 0

    @property
    def served(self) -> tuple[Generation, ...]:
        """Requests that were worked on, finished ones that hold their row included."""
        return tuple(one for call in self.calls for one in call.served)

    @property
    def batch_size(self) -> int:
        """Rows that were worked on."""
        return len(self.served)

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens that were computed."""
        return sum(call.tokens for call in self.calls if call.prefill)

    @property
    def decode_tokens(self) -> int:
        """Tokens that were decoded."""
        return sum(call.tokens for call in self.calls if not call.prefill)

    @property
    def computed_tokens(self) -> int:
        """Tokens that were computed, padding and finished requests included."""
        return sum(call.computed_tokens for call in self.calls)

    @property
    def useful_tokens(self) -> int:
        """Tokens that were computed for somebody."""
        return sum(call.useful_tokens for call in self.calls)

    @property
    def context_tokens(self) -> int:
        """Tokens that were read from the cache."""
        return sum(call.context_tokens for call in self.calls)
