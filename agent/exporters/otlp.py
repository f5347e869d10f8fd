"""Pushes the metrics over OTLP at an interval."""

import asyncio

from agent.exporters.base import ExporterContext
from agent.forwarding import METRICS_PIPE
from agent.otlp.codec import Signal, encode_samples

_FIRST_PUSH_S = 1.0  # a collector that has not come back by then is not waited for
_LOOK_S = 0.05


class OtlpExporter:
    """Offers one request per interval to the sender of the metrics pipe, while there is one."""

    def __init__(self, context: ExporterContext) -> None:
        self._context = context
        self._task: asyncio.Task[None] | None = None

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Begin to push."""
        self._task = group.create_task(self._push_every())

    async def stop(self) -> None:
        """Push once more, so that the last seconds are not lost."""
        if self._task is not None:
            self._task.cancel()
            self._push()

    async def _push_every(self) -> None:
        loop, pace = asyncio.get_running_loop(), self._context.pace
        latest_s = loop.time() + min(pace.interval_s, _FIRST_PUSH_S)
        while loop.time() < latest_s and not self._context.health.collected:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        due_s = loop.time()
        while True:
            if METRICS_PIPE in self._context.senders:
                await self._context.refresh()
            self._push()
            due_s = await pace.next(due_s)

    def _push(self) -> None:
        sender = self._context.senders.get(METRICS_PIPE)
        if sender is None:
            return
        samples = self._context.board.snapshot()
        if samples:
            body = encode_samples(samples, self._context.resource)
            sender.offer(Signal.METRICS, body, len(samples))
