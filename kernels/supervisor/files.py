"""Small file operations with exactly the flags that their purpose needs."""

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace `path` in one step; a reader never meets half of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def write_existing(path: Path, value: str) -> None:
    """Write without creating: on cgroupfs a missing file then reads as missing, not as forbidden."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)
