"""The engines whose steps pass through this agent; an engine is a thread."""

from collections import OrderedDict

from agent.telemetry.steps import Steps

Thread = tuple[int, int]
"""Process and thread id."""

MAX_ENGINES = 8


class Engines:
    """The engines seen lately; the one that was idle longest makes room."""

    def __init__(self, max_engines: int = MAX_ENGINES) -> None:
        self._max_engines = max_engines
        self._engines: OrderedDict[Thread, Steps] = OrderedDict()

    def __len__(self) -> int:
        return len(self._engines)

    def of(self, thread: Thread) -> Steps:
        """Return the engine of a thread."""
        engine = self._engines.get(thread)
        if engine is None:
            engine = self._engines[thread] = Steps()
            if len(self._engines) > self._max_engines:
                self._engines.popitem(last=False)
        self._engines.move_to_end(thread)
        return engine
