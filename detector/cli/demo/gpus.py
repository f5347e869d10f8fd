"""GPUs where there are none: the fake NVML, which the agent loads like the driver's library."""

import subprocess
import sys
from pathlib import Path

from detector.errors import CannotStartError

_PYTHON = (sys.executable, "-P", "-m")
_COMPILE_S = 120.0


def library() -> Path:
    """Return the fake NVML, compiled if it is not there yet."""
    return Path(_run("kernels.fakenvml.build"))


def stage(scenario: Path) -> None:
    """Write healthy GPUs for it to tell of."""
    _run("kernels.fakenvml.stage", "healthy", str(scenario))


def environment(library_path: Path, scenario: Path) -> dict[str, str]:
    """Return what makes a process see these GPUs and no others."""
    return {"LD_LIBRARY_PATH": str(library_path.parent), "FAKENVML_SCENARIO": str(scenario)}


def _run(*words: str) -> str:
    try:
        done = subprocess.run(
            (*_PYTHON, *words), capture_output=True, text=True, check=True, timeout=_COMPILE_S
        )
    except subprocess.CalledProcessError as exc:
        said = exc.stderr.strip().rpartition("\n")[2]
        raise CannotStartError(f"no fake NVML, so no GPU to fail: {said}") from exc
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise CannotStartError(f"no fake NVML, so no GPU to fail: {exc}") from exc
    return done.stdout.strip()
