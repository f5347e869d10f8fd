"""The plan of a run: which request leaves when. The same seed gives the same plan."""

import random
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from kernels.load.source import Source

_RECENT = 64
_PREFIXES = 8
_TEXT = (
    "cache token batch queue latency request model prompt answer window kernel memory stream "
    "server engine weight layer head value key time rate load tail cause trace span metric "
)


@dataclass(frozen=True)
class PlanConfig:
    """Rate, length and mix of a run."""

    rate: float
    duration_s: float
    seed: int
    tenants: int = 200
    repeat_share: float = 0.1
    """Share of requests that repeat a recent prompt with the same limit, so caches are hit."""
    tenant: str | None = None
    """The one tenant that sends everything, instead of the usual mix."""
    prefix_tokens: int = 0
    """Length of the beginning, one of a few, that every prompt has before what is its own."""


@dataclass(frozen=True)
class Planned:
    """One request and when it leaves, in seconds after the start."""

    at_s: float
    prompt: str
    max_tokens: int
    tenant: str


def plan(config: PlanConfig, source: Source) -> Iterator[Planned]:
    """Yield the requests of a run in order of departure."""
    rng = random.Random(config.seed)  # noqa: S311 - a load pattern is no secret
    tenants = _Zipf(config.tenants)
    recent: deque[tuple[str, int]] = deque(maxlen=_RECENT)
    prefixes = _prefixes(config)
    at_s = 0.0
    while True:
        draw = source.draw(rng)
        at_s += draw.gap / config.rate
        if at_s >= config.duration_s:
            return
        if recent and rng.random() < config.repeat_share:
            prompt, max_tokens = rng.choice(recent)
        else:
            beginning = rng.choice(prefixes) if prefixes else ""
            prompt, max_tokens = beginning + _text(rng, draw.prompt_tokens), draw.output_tokens
            recent.append((prompt, max_tokens))
        tenant = config.tenant or f"tenant-{tenants.draw(rng):04d}"
        yield Planned(at_s, prompt, max_tokens, tenant)


class _Zipf:
    """Ranks with probability proportional to 1/(rank + 1)."""

    def __init__(self, size: int) -> None:
        self._cumulative = list(accumulate(1.0 / (rank + 1) for rank in range(size)))

    def draw(self, rng: random.Random) -> int:
        return bisect_left(self._cumulative, rng.random() * self._cumulative[-1])


def _prefixes(config: PlanConfig) -> list[str]:
    """Write the beginnings, such as system prompts are; the same for every run."""
    if not config.prefix_tokens:
        return []
    rng = random.Random("prefixes")  # noqa: S311 - a load pattern is no secret
    return [_text(rng, config.prefix_tokens) for _ in range(_PREFIXES)]


def _text(rng: random.Random, length: int) -> str:
    """Write ASCII text of this many bytes; the server's tokenizer makes a token of each byte."""
    words = _TEXT.split()
    text = ""
    while len(text) < length:
        text += rng.choice(words) + " "
    return text[:length]
