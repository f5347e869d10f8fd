"""What all parts of the benchmark share: the servers that run so far, and how much is measured."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.bench.workload_server import Server, Variant, serving


@dataclass(frozen=True)
class Effort:
    """Requests that are sent at once, how often, and how many at a rate or by a few clients, how often."""

    count: int
    rounds: int = 1
    at_rate: int = 0
    rate_rounds: int = 0


class Bench:
    """Where the servers run and who is told; `running` ends them."""

    def __init__(
        self, core: int, folder: Path, running: ExitStack, say: Callable[[str], None]
    ) -> None:
        self.core = core
        self.folder = folder
        self.say = say
        self.curves: dict[str, list[float]] = {}
        """Latencies to plot, by what they are of."""
        self._running = running
        self._servers: dict[tuple[tuple[str, str], ...], Server] = {}

    def servers(self, *settings: Mapping[str, str]) -> list[Server]:
        """Return a server for each of the settings; those that run already are used again."""
        return [self._server(one) for one in settings]

    def _server(self, settings: Mapping[str, str]) -> Server:
        key = tuple(sorted(settings.items()))
        if key not in self._servers:
            variant = Variant(self.folder, settings)
            self._servers[key] = self._running.enter_context(serving(self.core, variant))
        return self._servers[key]
