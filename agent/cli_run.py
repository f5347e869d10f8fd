"""`tailcause-agent run`."""

import argparse
import asyncio

from agent.allocator import collect_rarely, hold_little
from agent.config import Config
from agent.host.files import raise_descriptor_limit
from agent.privileges import settle
from agent.service import run_until_signalled


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--dry-run`."""
    parser.add_argument(
        "--dry-run",
        "--check-config",
        action="store_true",
        help="check the configuration, print it and what would run, and end",
    )


def run(args: argparse.Namespace, config: Config) -> int:
    """Run until a signal; raises `CannotStartError`."""
    if args.dry_run:
        from agent.dryrun import describe  # noqa: PLC0415  a running agent does without

        print(describe(config))
        return 0
    hold_little()
    collect_rarely()
    raise_descriptor_limit()
    settle(config)
    asyncio.run(run_until_signalled(config, args.load))
    return 0
