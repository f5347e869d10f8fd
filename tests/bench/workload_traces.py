"""Requests with the shapes of public traces, brought to a small model by dividing; the factors are printed.

Lengths keep their spread: it is what batching is about. The load generator of the demo, which wants a steady P99, draws
its logarithms together. Gaps are those of the Azure conversation trace throughout: the others are scripted or rounded.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import mean

from kernels.load.azure import CONVERSATION
from kernels.load.shape import GapTable
from kernels.workload.kv_blocks import BLOCK_TOKENS
from kernels.workload.tenants import ANYONE
from tests.bench.workload_figures import MOONCAKE, Lengths

MOONCAKE_BLOCK = 512
_LETTERS = "abcdefghijklmnopqrstuvwxyz     "


@dataclass(frozen=True)
class Asked:
    """One request; it departs after `at` mean gaps."""

    at: float
    prompt: str
    max_tokens: int


@dataclass(frozen=True)
class Scale:
    """What lengths are divided by, and the context that they have to fit into."""

    prompt: float
    answer: float
    context: int

    def lengths(self, prompt_tokens: float, answer_tokens: float) -> tuple[int, int]:
        """Scale the tokens of one request; the answer is cut to what the server gives anybody, the prompt to what room is left."""
        answer = min(
            max(1, round(answer_tokens / self.answer)), ANYONE.max_tokens, self.context // 2
        )
        room = self.context - answer
        return min(max(2, round(prompt_tokens / self.prompt)), room), answer

    def __str__(self) -> str:
        """Say it as a benchmark prints it."""
        return f"prompts ÷ {self.prompt:g}, answers ÷ {self.answer:g}, cut to {self.context}"


def azure(trace: Lengths, scale: Scale, count: int, seed: int = 1) -> list[Asked]:
    """Draw requests of one of the Azure traces; no two prompts begin alike."""
    return list(islice(_azure(trace, scale, random.Random(f"{trace.name} {seed}")), count))


def _azure(trace: Lengths, scale: Scale, rng: random.Random) -> Iterator[Asked]:
    gaps = GapTable(CONVERSATION.gaps)
    at = 0.0
    while True:
        prompt, answer = scale.lengths(
            trace.prompts.at(rng.random()), trace.answers.at(rng.random())
        )
        yield Asked(at, _text(rng, prompt - 1), answer)  # the tokenizer puts a token before it
        at += gaps.draw(rng)


def mooncake(scale: Scale, count: int, seed: int = 1) -> list[Asked]:
    """Draw requests of the Mooncake conversations, which share what those shared.

    With prompts divided by 32 one of its blocks is one of ours. Distances are divided like prompts: a small server has
    as much less of a past as it has less room for it.
    """
    rng = random.Random(f"mooncake {seed}")
    gaps = GapTable(CONVERSATION.gaps)
    head = _text(rng, BLOCK_TOKENS - 1)
    sent: list[Asked] = []
    at = 0.0
    for _ in range(count):
        prompt, answer = _conversation(rng, scale, head, sent)
        sent.append(Asked(at, prompt, answer))
        at += gaps.draw(rng)
    return sent


def _conversation(
    rng: random.Random, scale: Scale, head: str, sent: Sequence[Asked]
) -> tuple[str, int]:
    luck = rng.random()
    back = max(1, round(MOONCAKE.distances.at(rng.random()) / scale.prompt))
    if luck < MOONCAKE.repeat_share and back <= len(sent):
        return sent[-back].prompt, sent[-back].max_tokens
    goes_on = luck < MOONCAKE.continue_share and back <= len(sent)
    lengths = MOONCAKE.continued_tokens if goes_on else MOONCAKE.new_tokens
    tokens, answer = scale.lengths(
        lengths.at(rng.random()), MOONCAKE.output_tokens.at(rng.random())
    )
    known = head
    if goes_on:
        share = MOONCAKE.shares.at(rng.random())
        known = _long_enough(sent, back, round(share * tokens / BLOCK_TOKENS) * BLOCK_TOKENS - 1)
    known = known[: tokens - 1]
    return known + _text(rng, tokens - 1 - len(known)), answer


def _long_enough(sent: Sequence[Asked], back: int, length: int) -> str:
    """Return the beginning of the request so far back, or of the next one before it that is long enough."""
    length = max(length, BLOCK_TOKENS - 1)
    for one in reversed(sent[: len(sent) - back + 1]):
        if len(one.prompt) >= length:
            return one.prompt[:length]
    return sent[-back].prompt


def known_share(asked: Sequence[Asked], past: int = 0) -> float:
    """Return the share of blocks that a prefix cache of any size would find; the first `past` requests only fill it."""
    seen: set[str] = set()
    found = total = 0
    for at, one in enumerate(asked):
        ends = range(BLOCK_TOKENS - 1, len(one.prompt) + 1, BLOCK_TOKENS)
        blocks = [one.prompt[:end] for end in ends]
        if at >= past:
            total += len(blocks)
            found += sum(block in seen for block in blocks)
        seen.update(blocks)
    return found / total


def means(asked: Sequence[Asked]) -> str:
    """Say how long prompts and answers are on average."""
    prompt = mean(len(one.prompt) + 1 for one in asked)
    return f"{prompt:.0f} tokens asked, {mean(one.max_tokens for one in asked):.0f} answered"


def _text(rng: random.Random, length: int) -> str:
    """Write ASCII text of this many bytes; each becomes a token."""
    return "".join(rng.choices(_LETTERS, k=length))
