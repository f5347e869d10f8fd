"""One request inside the engine, and what the engine tells of it."""

from collections.abc import Callable
from dataclasses import dataclass, field

NO_TIME = 0


@dataclass(eq=False, slots=True)
class Generation:
    """A prompt on its way to a completion; the engine's thread writes it until it is finished.

    `sink` gets each Event in the thread that the engine's `deliver` chooses. `trace` is whatever the
    step observer wants to link its steps to.
    """

    prompt: list[int]
    max_tokens: int
    sink: Callable[["Event"], None]
    trace: object = None
    stop_at_eos: bool = False
    tokens: list[int] = field(default_factory=list)
    cached: int = 0
    done: bool = False
    cancelled: bool = False
    submitted_ns: int = NO_TIME
    scheduled_ns: int = NO_TIME
    first_token_ns: int = NO_TIME
    last_token_ns: int = NO_TIME

    @property
    def reserved_tokens(self) -> int:
        """KV tokens that this request may come to hold."""
        return len(self.prompt) + self.max_tokens


@dataclass(frozen=True, slots=True)
class Event:
    """One new token; `finish` is the OpenAI finish reason with the last one."""

    generation: Generation
    token: int
    finish: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """The shape of one engine step, known before it runs."""

    batch_size: int
    prefill_tokens: int
    decode_tokens: int
    context_tokens: int
    kv_used_ratio: float
