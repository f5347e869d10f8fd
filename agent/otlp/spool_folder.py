"""The folder of a spool: whose it is, and up to where it has been sent."""

import errno
import fcntl
import os
import struct
import zlib
from pathlib import Path

_CURSOR = struct.Struct("<QQ")
_CHECK = struct.Struct("<I")
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600


class InUseError(OSError):
    """Another process has the folder."""


def check_writable(folder: Path) -> None:
    """Raise `OSError` where the folder could not be made, without making it."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not existing.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(existing))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(existing))


class Place:
    """A folder that is held until `close`, with its cursor: a segment's number and an offset in it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        self._folder = folder
        self._lock = _locked(folder / "lock")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            self._cursor = os.open(folder / "cursor", flags, _FILE_MODE)
        except OSError:
            os.close(self._lock)
            raise

    def cursor(self) -> tuple[int, int]:
        """Return number and offset; (0, 0) where nothing, or nothing whole, is written."""
        raw = os.pread(self._cursor, _CURSOR.size + _CHECK.size, 0)
        fields = raw[: _CURSOR.size]
        if raw[_CURSOR.size :] != _CHECK.pack(zlib.crc32(fields)):
            return 0, 0
        number, offset = _CURSOR.unpack(fields)
        return number, offset

    def move_cursor(self, number: int, offset: int) -> None:
        """Write number and offset; raises `OSError`."""
        fields = _CURSOR.pack(number, offset)
        os.pwrite(self._cursor, fields + _CHECK.pack(zlib.crc32(fields)), 0)

    def close(self, *, remove: bool) -> None:
        """Let the folder go; `remove` takes it away, if nothing else is in it."""
        if remove:
            for name in ("cursor", "lock"):
                (self._folder / name).unlink(missing_ok=True)
        os.close(self._cursor)
        os.close(self._lock)
        if remove:
            self._folder.rmdir()


def _locked(file: Path) -> int:
    """Return a descriptor that holds the lock, until it is closed; raises `InUseError`."""
    lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = file.exists() and file.stat().st_ino == os.fstat(lock).st_ino
    except BlockingIOError:
        held = False
    if not held:  # where who had it has just removed it, the next attempt makes it anew
        os.close(lock)
        raise InUseError(errno.EBUSY, "another agent uses it", str(file))
    return lock


def sweep(folder: Path, keep: frozenset[str], before_unix_s: float) -> list[Path]:
    """Remove the spools in a folder that nobody holds or has written to since; return them."""
    try:
        spools = sorted(folder.iterdir())
    except OSError:  # there is none, or it is another user's: the spool itself tells of it
        return []
    return [spool for spool in spools if spool.name not in keep and _removed(spool, before_unix_s)]


def _removed(spool: Path, before_unix_s: float) -> bool:
    try:
        files = list(spool.iterdir())
        if not files or max(file.stat().st_mtime for file in files) >= before_unix_s:
            return False
        place = Place(spool)
        for file in spool.glob("*.seg"):
            file.unlink()
        place.close(remove=True)
    except OSError:  # it is somebody's, or no spool
        return False
    return True
