"""Completions kept for prompts that come again."""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from kernels.workload.spans import Value


class PromptCache:
    """Least-recently-used completions, keyed by a hash of the prompt and its limits.

    Greedy decoding is deterministic, so that the stored answer is the answer. Capacity 0 keeps none.
    """

    attributes: Mapping[str, Value] = {}
    available = True

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[bytes, tuple[int, ...]] = OrderedDict()

    def get(self, key: bytes) -> tuple[int, ...] | None:
        """Tokens of the completion, or None."""
        tokens = self._kept.get(key)
        if tokens is not None:
            self._kept.move_to_end(key)
        return tokens

    async def find(self, key: bytes) -> tuple[int, ...] | None:
        """Do as `get`, as every store of completions."""
        return self.get(key)

    async def open(self) -> None:
        """Nothing to do: it is in this process."""

    async def close(self) -> None:
        """Nothing to do either."""

    def put(self, key: bytes, tokens: Sequence[int]) -> None:
        """Keep a finished completion, forgetting the least recently used one when full."""
        self._kept[key] = tuple(tokens)
        self._kept.move_to_end(key)
        while len(self._kept) > self._capacity:
            self._kept.popitem(last=False)


def cache_key(
    prompt: str, max_tokens: int, stop_at_eos: bool, stops: Sequence[Sequence[int]] = ()
) -> bytes:
    """Hash of everything that decides a completion."""
    digest = hashlib.blake2b(prompt.encode("utf-8", errors="surrogatepass"), digest_size=16)
    digest.update(f"\0{max_tokens}\0{stop_at_eos}\0{stops}".encode())
    return digest.digest()
