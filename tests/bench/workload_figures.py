"""Quantiles of public traces: the Mooncake conversations with what prompts share, and the longest of the Azure requests.

Mooncake: kvcache-ai/Mooncake, FAST25-release conversation trace (Apache-2.0), 12 031 requests of 59 minutes; described in Qin et al.,
"Mooncake: Trading More Storage for Less Computation", FAST 2025. A prompt is a list of blocks of 512 tokens, whose ids
stand for everything up to the block's end.

Computed once from input_length, output_length and hash_ids: `numpy.quantile` at 0, 0.05 … 1 (linear). A request
*continues* an earlier one when it has more than the first block in common with any, since all have the first; the
share is that of its blocks which have been seen before, the distance is how many requests ago the last of these was
last seen.

Azure: source as in `kernels/load/azure.py`, whose tables stop at steps of 0.05. A straight line from the last but one
to the very longest would make the mean of the answers of `code` 2.4 times as long as it is: so the tails are here.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from kernels.load.azure import CODE, CONVERSATION, LEVELS

_TAIL_FROM = 0.95
_TAIL_LEVELS = (_TAIL_FROM, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999, 1.0)


@dataclass(frozen=True)
class Table:
    """Quantiles at `LEVELS`, and at finer ones from 0.96 on."""

    body: tuple[float, ...]
    tail: tuple[float, ...]

    def at(self, level: float) -> float:
        """Read it at any probability, linear between its points (inverse transform)."""
        if level < _TAIL_FROM:
            return _between(LEVELS, self.body, level)
        return _between(_TAIL_LEVELS, (self.body[-2], *self.tail), level)


def _between(levels: Sequence[float], values: Sequence[float], level: float) -> float:
    right = min(max(bisect_right(levels, level), 1), len(levels) - 1)
    share = (level - levels[right - 1]) / (levels[right] - levels[right - 1])
    return values[right - 1] + share * (values[right] - values[right - 1])


@dataclass(frozen=True)
class SharingQuantiles:
    """Lengths in tokens, apart for those that continue; the shares of requests; what they share and how far away."""

    requests: int
    continue_share: float
    repeat_share: float
    """Of requests whose blocks and length have all been there before."""
    known_share: float
    """Of all blocks, those that a cache of any size would have found."""
    new_tokens: Table
    continued_tokens: Table
    output_tokens: Table
    shares: Table
    distances: Table


@dataclass(frozen=True)
class Lengths:
    """One of the Azure traces: tokens of prompts and answers."""

    name: str
    prompts: Table
    answers: Table


# fmt: off
MOONCAKE = SharingQuantiles(
    requests=12_031,
    continue_share=0.387,
    repeat_share=0.0098,
    known_share=0.366,
    new_tokens=Table(
        (891, 897, 905, 943, 1092, 1336, 1757, 2767, 3913, 4587, 5264, 6188, 7418, 8828, 10771,
         13056, 15871, 19437, 25559, 38494, 126195),
        (43058, 51772, 67126, 89868, 111632, 121160, 126195)),
    continued_tokens=Table(
        (892, 1634, 2102, 2664, 3455, 4530, 5502, 6504, 7507, 8735, 9873, 11196, 12556, 14315,
         15780, 17655, 20219, 24341, 28908, 40992, 123194),
        (46107, 52757, 65839, 79133, 94868, 121299, 123194)),
    output_tokens=Table(
        (1, 10, 24, 46, 100, 156, 213, 256, 291, 322, 350, 375, 399, 423, 447, 472, 504, 543, 597,
         698, 2000),
        (738, 800, 892, 1119, 1568, 2000, 2000)),
    shares=Table(
        (0.015, 0.143, 0.286, 0.407, 0.5, 0.524, 0.6, 0.667, 0.7, 0.75, 0.8, 0.833, 0.867, 0.895,
         0.917, 0.931, 0.944, 0.958, 0.971, 0.983, 1.0),
        (0.986, 0.992, 1.0, 1.0, 1.0, 1.0, 1.0)),
    distances=Table(
        (5, 100, 141, 176, 204, 229, 257, 290, 324, 367, 422, 481, 550, 643, 757, 901, 1087, 1315,
         1661, 2129, 10514),
        (2255, 2566, 3488, 5105, 6686, 8870, 10514)),
)
AZURE_CONVERSATION = Lengths(
    "azure conversation",
    Table(CONVERSATION.input_tokens, (4086, 4090, 4098, 4142, 4831, 6179, 14050)),
    Table(CONVERSATION.output_tokens, (468, 509, 540, 601, 643, 954, 1000)),
)
AZURE_CODE = Lengths(
    "azure code",
    Table(CODE.input_tokens, (7430, 7435, 7436, 7436, 7436, 7437, 7437)),
    Table(CODE.output_tokens, (105, 128, 171, 251, 359, 825, 1899)),
)
# fmt: on
