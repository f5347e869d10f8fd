"""Gives sequences their room in the KV cache, and the beginnings that earlier ones have left."""

from collections.abc import Sequence
from typing import Protocol

from kernels.workload.generation import Generation
from kernels.workload.kv_blocks import BLOCK_TOKENS, KvBlocks, blocks_of, name_of


class BlockCopies(Protocol):
    """Whoever holds the contents of named blocks beside the rows that are worked on."""

    def save(self, row: int, start: int, block: int) -> None:
        """Copy a block's worth of a row's tokens from `start` on to `block`."""

    def load(self, row: int, blocks: Sequence[int], held: int) -> None:
        """Copy blocks to the start of a row, while the first `held` rows keep what they have."""


class KvMemory:
    """Blocks by need: those of the tokens that are there and of the next one; used in the engine's thread."""

    def __init__(self, blocks: KvBlocks, copies: BlockCopies) -> None:
        self._blocks = blocks
        self._copies = copies

    @property
    def tokens(self) -> int:
        """Tokens that a single sequence can have at most."""
        return self._blocks.count * BLOCK_TOKENS

    @property
    def used_ratio(self) -> float:
        """Share of the blocks that sequences hold."""
        return self._blocks.used / self._blocks.count

    def admit(self, one: Generation, tokens: int) -> bool:
        """Hold blocks for `tokens`, known ones first; False, and nothing held, when there is no room.

        The last token is always computed: its logits are what a prefill is for.
        """
        known = (one.length - 1) // BLOCK_TOKENS if self._blocks.keeps else 0
        self._name_up_to(one, known)
        found = self._blocks.find(one.block_names[:known])
        fresh = self._blocks.take(blocks_of(tokens) - len(found))
        if fresh is None:
            self._blocks.give_back(found)
            return False
        one.blocks = [*found, *fresh]
        one.cached = len(found) * BLOCK_TOKENS
        if not one.preemptions:  # what it finds of its own later is no hit
            one.reused = one.cached
        return True

    def restore(self, one: Generation, row: int) -> None:
        """Bring the known beginning of a sequence into its row, the last one in use."""
        if one.cached:
            self._copies.load(row, one.blocks[: one.cached // BLOCK_TOKENS], row)

    def has_room(self, one: Generation) -> bool:
        """Tell whether the next token has a block."""
        return one.cached < len(one.blocks) * BLOCK_TOKENS

    def grow(self, one: Generation) -> bool:
        """Hold one more block; False when there is none."""
        fresh = self._blocks.take(1)
        one.blocks += fresh or ()
        return fresh is not None

    def keep(self, one: Generation, row: int, before: int) -> None:
        """Name and save the blocks that have become full since `before` tokens were cached."""
        full = one.cached // BLOCK_TOKENS
        if not self._blocks.keeps or full == before // BLOCK_TOKENS:
            return
        self._name_up_to(one, full)
        for at in range(before // BLOCK_TOKENS, full):
            if self._blocks.name(one.blocks[at], one.block_names[at]):
                self._copies.save(row, at * BLOCK_TOKENS, one.blocks[at])

    def release(self, one: Generation) -> None:
        """Let go of everything that a sequence holds."""
        self._blocks.give_back(one.blocks)
        one.blocks = []

    def _name_up_to(self, one: Generation, full: int) -> None:
        names, sequence = one.block_names, one.sequence
        for start in range(len(names) * BLOCK_TOKENS, full * BLOCK_TOKENS, BLOCK_TOKENS):
            names.append(
                name_of(names[-1] if names else b"", sequence[start : start + BLOCK_TOKENS])
            )
