"""The agent as a service: signals, reloads, and what is told to whoever started it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable

from agent.about import About
from agent.config import Config
from agent.notify import Notifier, from_environment
from agent.privileges import tell
from agent.reload import Reloader
from agent.supervisor import Supervisor


class Service:
    """One agent, from its start to its end."""

    def __init__(self, config: Config, load: Callable[[], Config], notifier: Notifier) -> None:
        self._supervisor = Supervisor(config)
        self._notifier = notifier
        self._reloader = Reloader(config, load, self._supervisor.change, notifier)
        self._about = About(lambda: self._reloader.config)
        for source in (self._reloader.own_samples, self._about):
            self._supervisor.add_source(source)

    async def run(self) -> None:
        """Run until a signal; raises `CannotStartError`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._reloader.ask)
        await self._supervisor.run(self._ready, self._reloader.run, self._watch)

    def _stop(self) -> None:
        """Drain; the second signal ends the process at once."""
        if self._supervisor.is_stopping:
            sys.stderr.flush()
            os._exit(1)
        self._notifier.stopping()
        self._supervisor.stop()

    def _ready(self, ports: dict[str, int]) -> None:
        self._about.ready()
        announce(ports)
        tell(self._reloader.config)
        self._notifier.ready(" ".join(f"{name}={port}" for name, port in ports.items()))

    async def _watch(self) -> None:
        await self._notifier.watch(self._supervisor.health.summary)


def announce(ports: dict[str, int]) -> None:
    """Print the ready line on stdout."""
    sys.stdout.write(json.dumps({"event": "ready", **ports}) + "\n")
    sys.stdout.flush()


async def run_until_signalled(config: Config, load: Callable[[], Config]) -> None:
    """Run an agent until SIGTERM or SIGINT; `load` reads its configuration again at SIGHUP."""
    await Service(config, load, from_environment(os.environ)).run()
