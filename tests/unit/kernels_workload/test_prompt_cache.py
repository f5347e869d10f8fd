"""Completions kept for prompts that come again."""

from kernels.workload.prompt_cache import PromptCache, cache_key


def test_the_least_recently_used_is_forgotten() -> None:
    """A look-up counts as use."""
    cache = PromptCache(2)
    cache.put(b"a", [1])
    cache.put(b"b", [2])
    cache.get(b"a")
    cache.put(b"c", [3])
    assert [cache.get(key) for key in (b"a", b"b", b"c")] == [(1,), None, (3,)]


def test_capacity_zero_keeps_nothing() -> None:
    """0 switches the cache off."""
    cache = PromptCache(0)
    cache.put(b"a", [1])
    assert cache.get(b"a") is None


def test_the_limits_are_part_of_the_key() -> None:
    """The same prompt with another limit is another completion."""
    keys = {
        cache_key("p", 8, False),
        cache_key("p", 9, False),
        cache_key("p", 8, True),
        cache_key("q", 8, False),
    }
    assert len(keys) == 4
