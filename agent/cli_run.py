"""`tailcause-agent run`."""

import argparse
import asyncio

from agent.config import Config
from agent.host.files import raise_descriptor_limit
from agent.supervisor import run_until_signalled


def add_arguments(_: argparse.ArgumentParser) -> None:
    """Add nothing: all that can be said are settings."""


def run(_: argparse.Namespace, config: Config) -> int:
    """Run until a signal; raises `CannotStartError`."""
    raise_descriptor_limit()
    asyncio.run(run_until_signalled(config))
    return 0
