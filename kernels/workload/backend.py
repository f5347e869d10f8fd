"""What the engine asks of a runtime: run a batch over rows of its KV cache, move a row, save and load parts of rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Batch:
    """New tokens for the adjacent cache rows `first_row` … `first_row + B - 1`.

    `tokens` is int64 [B, T], padded on the right; `past` [B] are the lengths already cached; `fresh`
    [B] are the counts of real tokens in each row of `tokens`, at least 1. The first `held` rows keep what they
    have, also those behind the batch.
    """

    first_row: int
    tokens: NDArray[np.int64]
    past: NDArray[np.int64]
    fresh: NDArray[np.int64]
    held: int = 0


class Backend(Protocol):
    """A runtime that holds the weights and the KV cache."""

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Append the batch's tokens to its rows; logits [B, V] after each row's last real token."""

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` cached tokens of one row over another."""

    def save(self, row: int, start: int, block: int) -> None:
        """Copy a block's worth of a row's tokens from `start` on to `block`."""

    def load(self, row: int, blocks: Sequence[int], held: int) -> None:
        """Copy blocks to the start of a row, while the first `held` rows keep what they have."""
