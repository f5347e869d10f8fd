"""The folder of one demo run: logs, the truth, `run.json` and the report files."""

import fcntl
import os
import shutil
import time
from pathlib import Path

import msgspec

from detector.errors import CannotStartError

KEPT_RUNS = 10
_NEEDED_BYTES = 200 * 1024 * 1024
_SOCKET_PATH_LIMIT = 107
"""A unix socket's address holds no longer path (sun_path of unix(7), less its closing zero)."""


class RunDir:
    """A run's folder, locked for as long as the run lasts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"
        self.truth = path / "truth"
        self.workload = path / "workload"
        self.detector = path / "detector"
        self._lock = -1

    def create(self) -> None:
        """Make the folders, private where the truth lies, and take the lock."""
        socket_path = str(self.workload / "control.sock")
        if len(os.fsencode(socket_path)) > _SOCKET_PATH_LIMIT:
            raise CannotStartError(
                f"{self.path} is too long for a socket in it: choose a shorter --run-dir"
            )
        try:
            for folder in (self.path, self.logs, self.workload, self.detector):
                folder.mkdir(parents=True, exist_ok=True)
            self.truth.mkdir(mode=0o700, exist_ok=True)
            _write_synced(self.path / "probe", b"\0" * 65536)
            (self.path / "probe").unlink()
            self._lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise CannotStartError(
                f"another demo runs in {self.path}: choose another --run-dir"
            ) from exc
        except OSError as exc:
            raise CannotStartError(f"cannot write to {self.path}: {exc.strerror}") from exc
        self._check_space()

    def write(self, name: str, data: bytes) -> Path:
        """Write a file of the run whole or not at all; return its path."""
        target = self.path / name
        partial = target.with_name(f".{name}.partial")
        try:
            _write_synced(partial, data)
            partial.replace(target)
        except OSError as exc:
            raise CannotStartError(f"cannot write {target}: {exc.strerror}") from exc
        return target

    def write_json(self, name: str, value: object) -> Path:
        """Write `value` as indented JSON."""
        return self.write(name, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")

    def close(self) -> None:
        """Give the lock back."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _check_space(self) -> None:
        free = shutil.disk_usage(self.path).free
        if free < _NEEDED_BYTES:
            raise CannotStartError(
                f"{self.path} has {free // 2**20} MB free and a run needs {_NEEDED_BYTES // 2**20}: "
                "make room or set TAILCAUSE_STATE"
            )


def planned(chosen: Path | None, state: Path, seed: int) -> Path:
    """Return the folder that a run would use: `chosen`, or a new one below `state`."""
    return chosen.absolute() if chosen is not None else _fresh(state / "demo", seed)


def open_run(chosen: Path | None, state: Path, seed: int) -> RunDir:
    """Create the folder of this run and drop old runs beside it."""
    run = RunDir(planned(chosen, state, seed))
    if run.path.is_dir() and any(run.path.iterdir()):
        raise CannotStartError(f"{run.path} is not empty: choose another --run-dir")
    run.create()
    if chosen is None:
        prune(run.path.parent, KEPT_RUNS)
    return run


def prune(runs: Path, keep: int) -> None:
    """Remove all but the newest `keep` runs; one that still goes on stays."""
    folders = sorted((p for p in runs.iterdir() if (p / "lock").is_file()), key=lambda p: p.name)
    for folder in folders[:-keep]:
        if not _in_use(folder / "lock"):
            shutil.rmtree(folder, ignore_errors=True)


def _in_use(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True  # another user's, or just being removed by another demo
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _fresh(runs: Path, seed: int) -> Path:
    name = f"{time.strftime('%Y%m%dT%H%M%S')}-{seed}"
    candidates = [runs / name, *(runs / f"{name}-{again}" for again in range(2, 100))]
    return next((path for path in candidates if not path.exists()), candidates[-1])


def _write_synced(path: Path, data: bytes) -> None:
    """Write through to the disk, so that a full one shows here."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
