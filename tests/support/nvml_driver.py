"""Runs in a process of its own: evaluates lines of Python beside the real NVML binding.

A line is JSON text; the answer is JSON, `{"value": …}` or `{"error": class, "text": …}`.
"""

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pynvml


def device(index: int) -> Any:
    """Return the handle of a GPU."""
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def mig_device(gpu: int, index: int) -> Any:
    """Return the handle of a MIG device of a GPU."""
    return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device(gpu), index)


def plain(value: Any) -> Any:
    """Turn what the binding returns into JSON."""
    for kinds, convert in _CONVERSIONS:
        if isinstance(value, kinds):
            return convert(value)
    return value


def _members(value: Any) -> dict[str, Any]:
    return {name: plain(getattr(value, name)) for name, *_ in value._fields_}


def _dictionary(value: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(part) for name, part in value.items()}


_CONVERSIONS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (bytes, bytes.decode),
    ((ctypes.Structure, ctypes.Union), _members),
    (ctypes._SimpleCData, lambda value: plain(value.value)),
    (ctypes._Pointer, lambda value: ctypes.cast(value, ctypes.c_void_p).value),
    (pynvml.nvmlFriendlyObject, lambda value: _dictionary(vars(value))),
    ((list, tuple, ctypes.Array), lambda value: [plain(part) for part in value]),
    (dict, _dictionary),
)


def main() -> None:
    """Answer until the input ends."""
    names = {"n": pynvml, "ctypes": ctypes, "threading": threading, "time": time}
    names |= {"device": device, "mig_device": mig_device}
    for line in sys.stdin:
        text = json.loads(line)
        try:
            if text.startswith("\n"):
                exec(text, names)  # noqa: S102 - the test's own text
                value = names.pop("result", None)
            else:
                value = eval(text, names)  # noqa: S307 - the test's own text
            answer = {"value": plain(value)}
        except Exception as error:  # noqa: BLE001 - whatever it is, the test judges it
            answer = {"error": type(error).__name__, "text": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
