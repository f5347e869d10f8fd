"""Pushes the metrics over OTLP at an interval."""

import asyncio

from agent.exporters.base import ExporterContext
from agent.forwarding import METRICS_PIPE
from agent.otlp.codec import Signal, encode_samples
from agent.otlp.sender import Sender
from agent.pipeline import next_beat_s

_FIRST_PUSH_S = 1.0  # by then every collector has been called once


class OtlpExporter:
    """Offers one request per interval to the sender of the metrics pipe."""

    def __init__(self, context: ExporterContext) -> None:
        self._context = context
        self._sender: Sender | None = context.senders.get(METRICS_PIPE)
        self._task: asyncio.Task[None] | None = None

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Begin to push, if there is an address to push to."""
        if self._sender is not None:
            self._task = group.create_task(self._push_every(self._sender))

    async def stop(self) -> None:
        """Push once more, so that the last seconds are not lost."""
        if self._task is not None and self._sender is not None:
            self._task.cancel()
            self._push(self._sender)

    async def _push_every(self, sender: Sender) -> None:
        loop = asyncio.get_running_loop()
        interval_s = self._context.config.export_interval
        due_s = loop.time() + min(interval_s, _FIRST_PUSH_S)
        while True:
            await asyncio.sleep(due_s - loop.time())
            self._push(sender)
            due_s = next_beat_s(due_s, interval_s, loop.time())

    def _push(self, sender: Sender) -> None:
        samples = self._context.board.snapshot()
        if samples:
            body = encode_samples(samples, self._context.resource)
            sender.offer(Signal.METRICS, body, len(samples))
