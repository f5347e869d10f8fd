"""What an exporter is."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from agent.config import Config
from agent.health import Health
from agent.otlp.sender import Sender
from agent.pace import Pace
from agent.pipeline import Board
from agent.telemetry.model import Attributes


@dataclass(frozen=True)
class ExporterContext:
    """What every exporter is built from.

    `senders` are those in force, which may be others at every look; `ports` is where those that listen say on
    which port; `pace` is that of pushing.
    """

    config: Config
    board: Board
    resource: Attributes
    senders: Mapping[str, Sender]
    ports: dict[str, int]
    pace: Pace
    health: Health
    refresh: Callable[[], Awaitable[None]]
    """Brings the board up to date, for whoever is about to export it."""


class Exporter(Protocol):
    """Carries the board's samples out of the process."""

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Begin, with tasks in the group; raises `CannotStartError`."""

    async def stop(self) -> None:
        """Hand over what is current and end the tasks."""
