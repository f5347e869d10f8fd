"""What the engine asks of a runtime: run a batch over rows of its KV cache, and move a row."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Batch:
    """New tokens for the adjacent cache rows `first_row` … `first_row + B - 1`.

    `tokens` is int64 [B, T], padded on the right; `past` [B] are the lengths already cached; `fresh`
    [B] are the counts of real tokens in each row of `tokens`, at least 1.
    """

    first_row: int
    tokens: NDArray[np.int64]
    past: NDArray[np.int64]
    fresh: NDArray[np.int64]


class Backend(Protocol):
    """A runtime that holds the weights and the KV cache."""

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Append the batch's tokens to its rows; logits [B, V] after each row's last real token."""

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` cached tokens of one row over another."""
