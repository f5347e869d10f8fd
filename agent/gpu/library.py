"""Finding, loading and letting go of NVML, NVIDIA's management library.

Source: NVML API reference, "Initialization and Cleanup"; where a driver container puts its files:
NVIDIA GPU Operator documentation, "driver.root".
"""

import _ctypes
import ctypes
import importlib
import logging
import platform
import threading
from pathlib import Path
from typing import Any

from agent.collectors.base import NoData

_log = logging.getLogger(__name__)

SONAME = "libnvidia-ml.so.1"
DRIVER_ROOT = Path("/run/nvidia/driver")
_SHUTDOWN_S = 2.0


def candidates(configured: str = "", root: Path = DRIVER_ROOT) -> list[str]:
    """Return where to look for the library, in order; a configured path is the only one."""
    if configured:
        return [configured]
    folders = (f"usr/lib/{platform.machine()}-linux-gnu", "usr/lib64", "usr/lib")
    return [SONAME, *(str(root / folder / SONAME) for folder in folders)]


class Library:
    """The binding over the driver's library, which is opened afresh after each `release`.

    A new driver brings a new library of the same name, and the old one refuses to speak to it.
    """

    def __init__(self, configured: str = "") -> None:
        self._configured = configured

    def load(self) -> Any:
        """Return the binding over a library that is not initialised; raises `NoData` where there is none."""
        loaded = self._open()
        try:
            nvml: Any = importlib.import_module("pynvml")
        except ImportError as exc:
            raise NoData(
                "the package nvidia-ml-py is missing", remedy="pip install 'tailcause[agent]'"
            ) from exc
        nvml.nvmlLib = loaded
        nvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001  else it calls the library that was closed
        return nvml

    def _open(self) -> ctypes.CDLL:
        places = candidates(self._configured)
        for place in places:
            try:
                return ctypes.CDLL(place)
            except OSError as exc:
                _log.debug("event=gpu_library_not_loaded path=%s reason=%r", place, str(exc))
        where = self._configured or SONAME
        raise NoData(
            f"NVML is not on this machine ({where})",
            remedy="check gpu_library"
            if self._configured
            else "install the NVIDIA driver, if there is a GPU, or give gpu_library",
        )

    def release(self, nvml: Any, *, unload: bool) -> bool:
        """Let go of the driver, so that it can be replaced; False if it does not let go of us in time.

        `unload` closes the library too, which only may be done when no call is under way.
        """
        done = threading.Event()
        thread = threading.Thread(
            target=_shut_down, args=(nvml, done), name="gpu-release", daemon=True
        )
        thread.start()
        if not done.wait(_SHUTDOWN_S):
            _log.warning("event=gpu_not_released reason='nvmlShutdown has not come back'")
            return False
        if unload:
            loaded, nvml.nvmlLib = nvml.nvmlLib, None
            nvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001  its functions go with the library
            _ctypes.dlclose(loaded._handle)  # noqa: SLF001  ctypes has no other name for it
        return True


def _shut_down(nvml: Any, done: threading.Event) -> None:
    try:
        nvml.nvmlShutdown()
    except nvml.NVMLError as exc:
        _log.debug("event=gpu_shutdown reason=%r", str(exc))  # it was not initialised any more
    done.set()
