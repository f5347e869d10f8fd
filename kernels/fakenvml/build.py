"""Compiles the fake `libnvidia-ml.so.1`, once for each state of the sources and set of hidden symbols.

    python -m kernels.fakenvml.build [--hide SYMBOL]...

Prints the library's path; put its folder in `LD_LIBRARY_PATH`.
"""

import argparse
import hashlib
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernels.errors import WorkloadError
from kernels.fakenvml.errors import FakeNvmlError
from kernels.workload.cache import build_once, default_cache_dir

SOURCES = Path(__file__).parent / "src"
NAME = "libnvidia-ml.so.1"
_FLAGS = (
    "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-pthread",
    "-Wall", "-Wextra", "-Werror", "-shared", f"-Wl,-soname,{NAME}",
)  # fmt: skip

SYMBOLS_AFTER_2020: tuple[str, ...] = (
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetGraphicsRunningProcesses_v2",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses_v2",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetProcessesUtilizationInfo",
    "nvmlDeviceGetSupportedClocksEventReasons",
    "nvmlDeviceGetTemperatureV",
    "nvmlGpmMetricsGet",
    "nvmlGpmMigSampleGet",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
    "nvmlGpmSampleGet",
)
"""What a driver of 2020 (the 450 branch) lacks; hidden, the binding reports it as not found."""


def library(hide: Iterable[str] = (), flags: Sequence[str] = (), cache: Path | None = None) -> Path:
    """Return the library, compiled if it is not there yet.

    `hide` names functions that it shall not export, as an older driver does not; `flags` go to
    the compiler. Raises `FakeNvmlError` without a compiler.
    """
    hidden = tuple(sorted(set(hide)))
    if wrong := [name for name in hidden if not re.fullmatch(r"nvml\w+", name)]:
        raise FakeNvmlError(f"not a function of NVML: {', '.join(wrong)}")
    folder = (cache or default_cache_dir()) / "fakenvml" / _digest(hidden, flags)
    return build_once(folder / NAME, lambda path: _compile(path, hidden, flags))


def find_compiler() -> str | None:
    """Return a C compiler, if there is one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def _digest(hidden: Sequence[str], flags: Sequence[str]) -> str:
    total = hashlib.sha256(repr((platform.machine(), hidden, tuple(flags))).encode())
    for path in [*sorted(SOURCES.glob("*.[ch]")), Path(__file__)]:
        total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:24]


def _compile(path: Path, hidden: Sequence[str], flags: Sequence[str]) -> None:
    compiler = find_compiler()
    if compiler is None:
        raise FakeNvmlError("no C compiler: apt-get install gcc (or clang)")
    script = path.with_suffix(".map")
    script.write_text(_version_script(hidden))
    sources = [str(source) for source in sorted(SOURCES.glob("*.c"))]
    command = [compiler, *_FLAGS, *flags, f"-Wl,--version-script={script}", *sources]
    try:
        done = subprocess.run(
            [*command, "-o", str(path)], capture_output=True, text=True, check=False
        )
    finally:
        script.unlink()
    if done.returncode:
        raise FakeNvmlError(f"compiling the fake NVML failed: {done.stderr.strip()[-1000:]}")


def _version_script(hidden: Sequence[str]) -> str:
    """Export NVML's names alone; the linker prefers the more exact of two patterns that match."""
    local = "".join(f" {name};" for name in hidden)
    return f"{{ global: nvml[A-Z]*; local:{local} *; }};\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the library and print its path."""
    parser = argparse.ArgumentParser(
        prog="python -m kernels.fakenvml.build", description="Compile the fake NVML."
    )
    parser.add_argument(
        "--hide", action="append", default=[], metavar="SYMBOL", help="do not export a function"
    )
    options = parser.parse_args(arguments)
    try:
        sys.stdout.write(f"{library(options.hide)}\n")
    except WorkloadError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
