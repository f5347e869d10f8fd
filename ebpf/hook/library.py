"""libtailcause_span.so for Python: two functions that do nothing, on whose calls the agent's probe fires.

Only ctypes and the standard library: this runs inside other people's servers. Where the library is absent every call
does nothing.
"""

import ctypes
import logging
import os
from collections.abc import Callable
from pathlib import Path

PATH_VARIABLE = "TAILCAUSE_SPAN_LIBRARY"
LIBRARY = "libtailcause_span.so"

_log = logging.getLogger(__name__)
_LOW_64_BITS = (1 << 64) - 1


def library_path() -> Path | None:
    """Return where the library is: what the environment says, else the one of this package, if it was built."""
    given = os.environ.get(PATH_VARIABLE)
    path = Path(given) if given else Path(__file__).parent.parent / "built" / LIBRARY
    return path if path.exists() else None


class SpanLibrary:
    """Marks where a span starts and ends; call both on the thread that does the span's work."""

    def __init__(self, path: Path | None = None) -> None:
        self._start: Callable[[int, int, int], object] = _nothing
        self._end: Callable[[int, int, int], object] = _nothing
        self.available = self._load(path or library_path())

    def _load(self, path: Path | None) -> bool:
        if path is None:
            _log.debug("span library not found, spans have no ledger")
            return False
        try:
            # PyDLL keeps the interpreter's lock: to drop it for a no-op could cost a switch of threads.
            functions = ctypes.PyDLL(str(path))
            start, end = functions.tailcause_span_start, functions.tailcause_span_end
        except (OSError, AttributeError) as exc:
            _log.debug("span library not usable, spans have no ledger path=%s reason=%s", path, exc)
            return False
        for function in (start, end):
            function.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)
            function.restype = None
        self._start, self._end = start, end
        return True

    def start(self, trace_id: int, span_id: int) -> None:
        """Mark the start of a span, given its OpenTelemetry ids."""
        self._start(trace_id >> 64, trace_id & _LOW_64_BITS, span_id)

    def end(self, trace_id: int, span_id: int) -> None:
        """Mark its end."""
        self._end(trace_id >> 64, trace_id & _LOW_64_BITS, span_id)


def _nothing(_high: int, _low: int, _span: int) -> None:
    return
