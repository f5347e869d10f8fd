"""Keys and values of the running requests in one preallocated block, read without a copy.

The rows in use are always the first ones, so "the first B rows" is one contiguous view per layer that
the runtime reads in place. The stride between rows is the longest row in use, in steps of 64 tokens: short
contexts cost little, and the rows are copied only when the stride grows (it shrinks when none is in use).
"""

import numpy as np
from numpy.typing import NDArray

STRIDE_TOKENS = 64


class KvPool:
    """Cache of [planes, rows, heads, tokens, head size]; a plane is the key or value of a layer."""

    def __init__(self, planes: int, rows: int, heads: int, head_size: int, context: int) -> None:
        self._planes = planes
        self._heads = heads
        self._head_size = head_size
        self._context = context
        # Zeroed pages cost nothing until touched. Stale values stay behind; they are masked, and finite.
        self._memory = np.zeros((planes, rows * heads * context * head_size), np.float32)
        self._stride = STRIDE_TOKENS

    @property
    def stride(self) -> int:
        """Tokens that a row has room for at present."""
        return self._stride

    @property
    def context(self) -> int:
        """Tokens that a row can have room for at most."""
        return self._context

    def rows(self, first: int, count: int) -> list[NDArray[np.float32]]:
        """One contiguous view [count, heads, stride, head size] per plane."""
        size = self._heads * self._stride * self._head_size
        shape = (count, self._heads, self._stride, self._head_size)
        return [
            plane[first * size : (first + count) * size].reshape(shape) for plane in self._memory
        ]

    def reserve(self, in_use: int, tokens: int) -> None:
        """Make room for `tokens` in every row while keeping the first `in_use` rows."""
        wanted = min(self._context, -(-tokens // STRIDE_TOKENS) * STRIDE_TOKENS)
        if in_use == 0:
            self._stride = wanted
        elif wanted > self._stride:
            kept = [view.copy() for view in self.rows(0, in_use)]
            before, self._stride = self._stride, wanted
            for view, old in zip(self.rows(0, in_use), kept, strict=True):
                view[:, :, :before] = old

    def append(
        self,
        first: int,
        past: NDArray[np.int64],
        fresh: NDArray[np.int64],
        values: NDArray[np.float32],
    ) -> None:
        """Write `values` [planes, B, heads, T, head size] behind the `past` tokens of their rows."""
        block = self._block(first, len(past))
        if values.shape[3] == 1:
            index = np.arange(len(past))
            block[:, index, :, past] = values[:, :, :, 0].swapaxes(0, 1)
            return
        for row, (start, count) in enumerate(zip(past.tolist(), fresh.tolist(), strict=True)):
            block[:, row, :, start : start + count] = values[:, row, :, :count]

    def read(self, row: int, start: int, count: int) -> NDArray[np.float32]:
        """View of `count` tokens of a row: [planes, heads, count, head size]."""
        return self._block(row, 1)[:, 0, :, start : start + count]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of a row over another row."""
        block = self._block(0, max(source, target) + 1)
        block[:, target, :, :length] = block[:, source, :, :length]

    def _block(self, first: int, count: int) -> NDArray[np.float32]:
        size = self._heads * self._stride * self._head_size
        part = self._memory[:, first * size : (first + count) * size]
        return part.reshape(self._planes, count, self._heads, self._stride, self._head_size)
