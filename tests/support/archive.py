"""Programs of the distribution's archive, unpacked into the cache: installed, they would start as services.

The cache is $TAILCAUSE_CACHE, else ~/.cache/tailcause.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_FETCH_S = 300.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class NotThereError(Exception):
    """A program is neither installed nor to be had."""


def unpacked(package: str) -> str:
    """Return the program of a package that has the package's name; raises `NotThereError`."""
    if (installed := shutil.which(package, path=_PATH)) is not None:
        return installed
    named = os.environ.get("TAILCAUSE_CACHE")
    folder = (Path(named) if named else Path.home() / ".cache/tailcause") / "peers"
    program = folder / package / "usr" / "bin" / package
    if not program.exists():
        _fetch(package, folder)
    return str(program)


def _fetch(package: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        fresh = Path(name)
        fresh.chmod(0o777)  # apt downloads as a user of its own
        try:
            _run("apt-get", "download", package, cwd=fresh)
            for archive in fresh.glob("*.deb"):
                _run("dpkg", "-x", str(archive), str(fresh / "root"), cwd=fresh)
            shutil.rmtree(folder / package, ignore_errors=True)
            (fresh / "root").rename(folder / package)
        except (OSError, subprocess.SubprocessError) as exc:
            words = getattr(exc, "stderr", None) or str(exc)
            raise NotThereError(
                f"needs {package}: {words.strip()}; run  apt-get update  or install it"
            ) from exc


def _run(*command: str, cwd: Path) -> None:
    subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True, timeout=_FETCH_S)
