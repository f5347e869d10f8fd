"""The KV budget in blocks, and the full blocks of earlier sequences that new ones may begin with.

A full block goes by a hash over every token from the start of its sequence to its end: equal names, equal keys and
values (prefix caching as in vLLM and SGLang). Sequences that begin alike hold the same blocks. A named block that nobody
holds stays until its room is needed, least recently used first.
"""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence

BLOCK_TOKENS = 16


def blocks_of(tokens: int) -> int:
    """Blocks that hold this many tokens."""
    return -(-tokens // BLOCK_TOKENS)


def name_of(before: bytes, tokens: Sequence[int]) -> bytes:
    """Name of a full block; `before` is the name of the one ahead of it, empty for the first."""
    digest = hashlib.blake2b(before, digest_size=16)
    digest.update(array("I", tokens).tobytes())
    return digest.digest()


class KvBlocks:
    """Which blocks are free, held and named; without `keeps` nobody should name any."""

    def __init__(self, count: int, *, keeps: bool = True) -> None:
        self._count = count
        self.keeps = keeps
        self._holders = [0] * count
        self._names: list[bytes] = [b""] * count
        self._free = list(range(count - 1, -1, -1))
        self._named: dict[bytes, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def count(self) -> int:
        """All blocks."""
        return self._count

    @property
    def used(self) -> int:
        """Blocks that somebody holds."""
        return self._count - len(self._free) - len(self._idle)

    def find(self, names: Sequence[bytes]) -> list[int]:
        """Hold and return the blocks of the longest known beginning of a sequence."""
        found: list[int] = []
        for name in names:
            block = self._named.get(name)
            if block is None:
                break
            self._idle.pop(block, None)
            self._holders[block] += 1
            found.append(block)
        return found

    def take(self, count: int) -> list[int] | None:
        """Hold this many blocks without content; None, and nothing held, when there is no room."""
        if count > len(self._free) + len(self._idle):
            return None
        return [self._take() for _ in range(count)]

    def name(self, block: int, name: bytes) -> bool:
        """Name a block that has become full; False where the name is taken, or the block has one."""
        if name in self._named or self._names[block]:
            return False
        self._named[name] = block
        self._names[block] = name
        return True

    def give_back(self, blocks: Sequence[int]) -> None:
        """Let go of blocks; of named ones the end of a sequence is forgotten before its beginning."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            if self._names[block]:
                self._idle[block] = None
            else:
                self._free.append(block)

    def _take(self) -> int:
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._idle.popitem(last=False)
            del self._named[self._names[block]]
            self._names[block] = b""
        self._holders[block] = 1
        return block
