"""The senders in force: one for each pipe that leads anywhere, so that a flood of spans cannot push the metrics out."""

import asyncio
from collections.abc import Mapping

from agent.forwarding import Forwarding, Way
from agent.otlp.sender import Sender


class Outlets:
    """Runs them, and puts others in their place while they run."""

    def __init__(self, forwarding: Forwarding) -> None:
        """Raise `CannotStartError` for certificates that cannot be used."""
        self._ways = forwarding.ways()
        self.senders = {pipe: way.sender() for pipe, way in self._ways.items()}
        """By pipe; the same mapping all the time."""
        self._running: dict[Sender, asyncio.Task[None]] = {}
        self._successions: list[tuple[Sender | None, Sender | None]] = []
        self._group: asyncio.TaskGroup | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin to send."""
        self._group = group
        for sender in self.senders.values():
            self._run(sender)

    def _run(self, sender: Sender) -> None:
        if self._group is not None:
            self._running[sender] = self._group.create_task(sender.run())

    def prepare(self, forwarding: Forwarding) -> Mapping[str, Way]:
        """Return the ways that are to come, tried as far as possible; raises `CannotStartError`, and changes nothing."""
        ways = forwarding.ways()
        for pipe, way in ways.items():
            if way != self._ways.get(pipe):
                way.sender()  # reads the certificates
        return ways

    def change(self, ways: Mapping[str, Way]) -> None:
        """Send new items these ways from now on; `settle` then sees to those that wait."""
        for pipe in {*self._ways, *ways}:
            if self._ways.get(pipe) != ways.get(pipe):
                self._replace(pipe, ways.get(pipe))
        self._ways = dict(ways)

    def _replace(self, pipe: str, way: Way | None) -> None:
        old, new = self.senders.pop(pipe, None), way.sender() if way is not None else None
        if new is not None:
            if old is not None:
                new.stats = old.stats  # the pipe goes on counting
            self.senders[pipe] = new
        self._successions.append((old, new))

    async def settle(self) -> None:
        """Let each sender that was replaced send what it can, then its successor begin: they may share a spool."""
        while self._successions:
            old, new = self._successions[0]
            if old is not None:
                await old.close(new)
                await asyncio.wait({self._running[old]})  # which goes on if this is cancelled
                del self._running[old]
            if new is not None:
                self._run(new)
            self._successions.pop(0)

    async def close(self) -> None:
        """Send what is queued, within the time that a sender has for it."""
        for sender in {*self._running, *self.senders.values()}:
            await sender.close()
        idle = [sender for sender in self.senders.values() if sender not in self._running]
        await asyncio.gather(*self._running.values(), *(sender.run() for sender in idle))
