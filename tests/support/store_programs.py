"""Where the programs of real store servers are on this machine; None where they are not installed."""

import shutil
from pathlib import Path


def _program(name: str, pattern: str) -> str | None:
    """Find a program where its package keeps it, the newest first, or on the path."""
    kept = sorted(Path("/").glob(pattern), reverse=True)
    return str(kept[0]) if kept else shutil.which(name)


INITDB = _program("initdb", "usr/lib/postgresql/*/bin/initdb")
POSTGRES = _program("postgres", "usr/lib/postgresql/*/bin/postgres")
REDIS = _program("redis-server", "usr/bin/redis-server")
