"""Reading small kernel files again and again, cheaply."""

import os
from collections import OrderedDict
from pathlib import Path

_READ_BYTES = 1 << 16


class KernelFiles:
    """Keeps descriptors of hot files open and rereads them by `pread`, at most `max_open` of them.

    A fresh open costs about four times as much as a read; past the bound the least recently used
    descriptor is closed. Not thread-safe.
    """

    def __init__(self, max_open: int = 1024) -> None:
        self._max_open = max_open
        self._descriptors: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._descriptors)

    def read(self, path: str) -> str:
        """Return a file's text; raises OSError as `open` does, also once the file is gone."""
        descriptor = self._descriptors.get(path)
        if descriptor is None:
            return self._read_new(path)
        try:
            text = os.pread(descriptor, _READ_BYTES, 0).decode()
        except OSError:  # the cgroup of that name was removed, and maybe made again
            self.forget(path)
            return self._read_new(path)
        self._descriptors.move_to_end(path)
        return text

    def _read_new(self, path: str) -> str:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.pread(descriptor, _READ_BYTES, 0).decode()
        except OSError:
            os.close(descriptor)
            raise
        self._descriptors[path] = descriptor
        if len(self._descriptors) > self._max_open:
            _, oldest = self._descriptors.popitem(last=False)
            os.close(oldest)
        return text

    def forget(self, path: str) -> None:
        """Close a file's descriptor, if it is open."""
        descriptor = self._descriptors.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Close every descriptor."""
        while self._descriptors:
            _, descriptor = self._descriptors.popitem()
            os.close(descriptor)


def read_text(path: Path) -> str:
    """Return a small file's text; raises OSError."""
    return path.read_text(encoding="utf-8", errors="replace")
