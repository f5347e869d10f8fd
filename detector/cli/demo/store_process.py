"""One store as a part of a demo: `python -m detector.cli.demo.store_process SCHEME`.

Serves from a folder of its own until told to end, or until its demo dies, and removes the folder.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from detector.cli.demo.stores import STORES, preparation, server, url
from detector.errors import CannotStartError

_PR_SET_PDEATHSIG = 1
_READY = "ready to accept connections"
"""Both stores say it, in one case or another, when they answer."""
_END_S = 2.0


def main(arguments: list[str]) -> int:
    """Serve; 2 when the store cannot be started."""
    if len(arguments) != 1 or arguments[0] not in STORES:
        sys.stderr.write(f"which store? one of {', '.join(STORES)}\n")
        return 2
    signal.signal(signal.SIGTERM, _end)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # time to clean up, not SIGKILL
    try:
        return _serve(arguments[0])
    except (OSError, CannotStartError, subprocess.CalledProcessError) as exc:
        sys.stderr.write(f"cannot start {arguments[0]}: {exc}\n")
        return 2


def _serve(scheme: str) -> int:
    with _folder() as folder:
        make = preparation(scheme, folder)
        if make:
            subprocess.run(make, check=True, cwd=folder, stdout=sys.stderr)
        with _running(scheme, folder) as process:
            for line in process.stdout or ():
                sys.stderr.write(line)
                if _READY in line.lower():
                    _announce(url(scheme, folder))
            return process.wait() or 1  # it ended before it was told to


@contextmanager
def _folder() -> Iterator[Path]:
    """Make a folder that only the store and root can enter."""
    folder = Path(tempfile.mkdtemp(prefix="tailcause-store-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody", "nogroup")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(scheme: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        server(scheme, folder), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    try:
        yield process
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        process.send_signal(signal.Signals[f"SIG{STORES[scheme].ends_by}"])
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        process.kill()
        process.wait()


def _announce(address: str) -> None:
    sys.stdout.write(json.dumps({"event": "ready", "url": address}) + "\n")
    sys.stdout.flush()


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
