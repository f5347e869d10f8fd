"""Reading small kernel files again and again, cheaply."""

import errno
import os
import resource
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

_READ_BYTES = 1 << 16
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_Parsed = TypeVar("_Parsed")


@dataclass(slots=True)
class _Open:
    """A file that stays open; what it held last, and what that was parsed to."""

    descriptor: int
    content: bytes
    parsed: object = None


class KernelFiles:
    """Keeps descriptors of hot files open and rereads them by `pread`, at most `max_open` of them.

    A fresh open costs about four times as much as a read. Past the bound files are opened for each read: whoever was
    first keeps its descriptor, because the files are read in turn, and closing the oldest would close every one just
    before it is needed. Not thread-safe.
    """

    def __init__(self, max_open: int = 1024) -> None:
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        unlimited = allowed == resource.RLIM_INFINITY
        # The other half is for sockets and probes.
        self._max_open = max_open if unlimited else min(max_open, allowed // 2)
        self._open_files: dict[str, _Open] = {}
        weakref.finalize(self, _close_all, self._open_files)

    def __len__(self) -> int:
        return len(self._open_files)

    def read(self, path: str, *, keep: bool = True) -> str:
        """Return a file's text; raises OSError as `open` does, also once the file is gone.

        `keep` says whether the file is read so often that its descriptor is worth keeping.
        """
        return self.parsed(path, str, keep=keep)

    def parsed(self, path: str, parse: Callable[[str], _Parsed], *, keep: bool = True) -> _Parsed:
        """Return what `parse` makes of a file's text; raises what it raises, and OSError.

        A text that has not changed is not parsed again (most cgroups are idle), so what comes back must not be
        written to. One path goes with one parser.
        """
        known = self._open_files.get(path)
        if known is None:
            return self._parsed_new(path, parse, keep)
        try:
            content = os.pread(known.descriptor, _READ_BYTES, 0)
        except OSError:  # the cgroup of that name was removed, and maybe made again
            self.forget(path)
            return self._parsed_new(path, parse, keep)
        if content != known.content or known.parsed is None:
            known.parsed = parse(content.decode())
            known.content = content
        return known.parsed  # type: ignore[return-value]  # of the path's own parser

    def _parsed_new(self, path: str, parse: Callable[[str], _Parsed], keep: bool) -> _Parsed:
        descriptor = self._open(path)
        kept = False
        try:
            content = os.pread(descriptor, _READ_BYTES, 0)
            kept = keep and len(self._open_files) < self._max_open
        finally:
            if not kept:
                os.close(descriptor)
        if kept:
            self._open_files[path] = _Open(descriptor, content)
        return parse(content.decode())

    def _open(self, path: str) -> int:
        """Open a file; where this process is out of descriptors, it keeps fewer from now on."""
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as exc:
            if exc.errno not in _OUT_OF_DESCRIPTORS or not self._open_files:
                raise
        self._max_open = len(self._open_files) // 2
        while len(self._open_files) > self._max_open:
            os.close(self._open_files.popitem()[1].descriptor)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def forget(self, path: str) -> None:
        """Close a file's descriptor, if it is open."""
        known = self._open_files.pop(path, None)
        if known is not None:
            os.close(known.descriptor)

    def close(self) -> None:
        """Close every descriptor."""
        _close_all(self._open_files)


def _close_all(files: dict[str, _Open]) -> None:
    while files:
        os.close(files.popitem()[1].descriptor)


def raise_descriptor_limit(wanted: int = 16_384) -> None:
    """Let this process open as many files as it may ask for, up to `wanted`: services start with 1 024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ceiling = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < ceiling:
        resource.setrlimit(resource.RLIMIT_NOFILE, (ceiling, hard))


def read_text(path: Path) -> str:
    """Return a small file's text; raises OSError."""
    return path.read_text(encoding="utf-8", errors="replace")
