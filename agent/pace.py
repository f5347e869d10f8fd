"""How often something is done, and when next."""

import asyncio


class Pace:
    """Beats at a fixed distance that can be changed while somebody waits for the next one."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._changed = asyncio.Event()

    def change(self, interval_s: float) -> None:
        """Beat at another distance, from now on."""
        if interval_s != self.interval_s:
            self.interval_s = interval_s
            self._changed.set()
            self._changed = asyncio.Event()

    async def next(self, due_s: float) -> float:
        """Wait for the first beat after one that was due, and return when that was, on the loop's clock.

        Beats that were missed are skipped.
        """
        loop = asyncio.get_running_loop()
        while True:
            beat_s = next_beat_s(due_s, self.interval_s, loop.time())
            try:
                async with asyncio.timeout_at(beat_s):
                    await self._changed.wait()
            except TimeoutError:
                return beat_s


def next_beat_s(due_s: float, interval_s: float, now_s: float) -> float:
    """Return the first beat of the pace that lies ahead."""
    missed = max(0, int((now_s - due_s) / interval_s))
    return due_s + (missed + 1) * interval_s
