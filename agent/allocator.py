"""How much memory the C library holds back for later (little), and how often Python looks for cycles in it (rarely).

By default glibc gives every thread an arena of its own, and after a large block was freed it keeps blocks of that size.
An agent has two dozen threads that do little, and a large block every few seconds: that came to 7 MB of 77.

Source: mallopt(3); glibc's malloc.h has the numbers of the parameters.
"""

import ctypes
import gc
import logging
import os

_log = logging.getLogger(__name__)

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 1 << 17
_PARAMETERS = (
    (_ARENA_MAX, 1),
    (_MMAP_THRESHOLD, _LARGE_BYTES),  # its default, which setting it keeps from growing
    (_TRIM_THRESHOLD, _LARGE_BYTES),
)
_NEW_OBJECTS = 10_000
_CHOSEN = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def hold_little() -> bool:
    """Set it, unless the environment says otherwise; False where that is so, or another C library has no such thing."""
    if any(name in os.environ for name in _CHOSEN):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        _log.debug("event=allocator_not_set why='this C library has no mallopt'")
        return False
    return all(mallopt(*parameter) == 1 for parameter in _PARAMETERS)


def collect_rarely() -> None:
    """Look for cycles after ten thousand new objects, and never among those that were there when the agent began.

    A round of collections makes thousands of objects that live until the next one: with Python's own threshold of 700
    the collector ran three times a second, and found nothing.
    """
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
