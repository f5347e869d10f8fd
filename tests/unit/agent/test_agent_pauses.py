"""Pauses of the agent: each collection of garbage is timed, and none that comes after the end."""

import asyncio
import gc

from agent.pauses import Pauses


async def test_collections_are_counted_until_the_end() -> None:
    """Three collections are three pauses that took time; a fourth, after the end, is none."""
    pauses = Pauses()
    async with asyncio.TaskGroup() as group:
        looking = pauses.start(group)
        for _ in range(3):
            gc.collect()
        pauses.stop()
        gc.collect()
        looking.cancel()
    [_, collections] = pauses.own_samples()
    assert collections.metric == "tailcause.agent.gc.pause"
    assert collections.value == 3
    assert collections.explicit is not None
    assert collections.explicit.sum > 0
