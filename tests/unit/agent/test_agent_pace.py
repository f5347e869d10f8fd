"""A pace skips beats that were missed, and changes while somebody waits."""

import asyncio

from agent.pace import Pace


async def test_change_counts_at_once() -> None:
    """Who waits for a beat in an hour gets the one of the new pace."""
    pace, loop = Pace(3600.0), asyncio.get_running_loop()
    begun_s = loop.time()
    waiting = asyncio.create_task(pace.next(begun_s))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    pace.change(0.05)
    async with asyncio.timeout(30):
        beat_s = await waiting
    beats = (beat_s - begun_s) / 0.05
    assert abs(beats - round(beats)) < 1e-6
    assert round(beats) >= 1


async def test_missed_beats_are_skipped() -> None:
    """After a long task the next beat is one that lies ahead, at the old distance."""
    pace, loop = Pace(0.05), asyncio.get_running_loop()
    due_s = loop.time() - 10.02
    async with asyncio.timeout(30):
        beat_s = await pace.next(due_s)
    assert beat_s >= due_s + 10.0
    assert loop.time() >= beat_s
