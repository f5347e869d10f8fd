"""Files that are built once and kept: the model and the tenant database."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from kernels.errors import WorkloadError


def default_cache_dir() -> Path:
    """`$XDG_CACHE_HOME/tailcause`, else `~/.cache/tailcause`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tailcause"


def build_once(path: Path, build: Callable[[Path], None]) -> Path:
    """Return `path`, built by `build(temporary_path)` when it is not there yet.

    The rename is atomic, so that servers that start together never read half a file.
    """
    if path.exists():
        return path
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        build(temporary)
        temporary.replace(path)
    except OSError as error:
        raise WorkloadError(
            f"cannot write {path}: {error.strerror}: free some space or pass --cache DIR"
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return path
