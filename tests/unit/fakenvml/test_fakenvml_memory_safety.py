"""The library under the address and undefined-behaviour sanitizers, and its memory over many rewrites."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels.fakenvml import build, scenarios
from kernels.fakenvml.scenario import Scenario
from tests.support.nvml_session import NvmlSession

SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O0")

TOUR = """
import inspect
def wants_pointer(function):
    parameters = inspect.signature(function).parameters.values()
    return any(p.name.endswith("Ref") or isinstance(p.default, ctypes.c_uint) for p in parameters)
def tour(handles):
    answered = refused = 0
    for name, function in vars(n).items():
        if not name.startswith("nvml") or not inspect.isfunction(function) or name in skip:
            continue
        if wants_pointer(function):
            continue  # a number would be an address there
        for handle in handles:
            for rest in ((), (0,), (1,), (0, 0), (0, 0, 2), ([82, 138, (139, 2), 185],)):
                try:
                    function(handle, *rest)
                    answered += 1
                except (n.NVMLError, n.NVMLLibraryMismatchError):
                    refused += 1
                except (TypeError, AttributeError, ctypes.ArgumentError, ValueError):
                    pass  # not what this function takes
    return [answered, refused]
"""
SKIP = (
    *("nvmlEventSetWait", "nvmlEventSetWait_v2", "nvmlInitWithFlags", "nvmlShutdown"),
    *("nvmlExceptionClass", "nvmlErrorString"),
)


@pytest.fixture
def checked() -> tuple[Path, dict[str, str]]:
    """Compile the library with sanitizers; return it and what its process needs."""
    compiler = build.find_compiler()
    if compiler is None:
        pytest.skip("needs a C compiler")
    runtime = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip("needs a compiler with the address sanitizer")
    environment = {"LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1"}
    return build.library(flags=SANITIZE), environment


def test_tour_under_the_sanitizers(checked: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """Every function of the binding with all sorts of arguments, while the scenario changes: no report."""
    library, environment = checked
    session = NvmlSession(library, tmp_path, scenarios.mig(gpus=2), environment=environment)
    try:
        session.run(f"skip = {SKIP!r}\n" + TOUR)
        handles = "[device(0), device(1), mig_device(0, 1), n.c_nvmlDevice_t()]"
        answered, refused = session.ask(f"tour({handles})")
        session.run(f"old = {handles}")
        session.stage(scenarios.ecc().reloaded())
        session.run("n.nvmlShutdown()\nn.nvmlInit()")
        stale, _ = session.ask("tour(old)")
        session.run("events = n.nvmlEventSetCreate()")
        session.run("n.nvmlDeviceRegisterEvents(device(0), 0x8, events)")
        session.stage(scenarios.xid_twice().reloaded())
        heard = [session.ask("n.nvmlEventSetWait_v2(events, 60000).eventData") for _ in (0, 1)]
        session.run("n.nvmlEventSetFree(events)\nn.nvmlShutdown()")
    finally:
        status = session.close()
    assert status == 0
    assert "Sanitizer" not in session_errors(tmp_path)
    assert answered > 150
    assert refused > 100
    assert stale < answered / 4
    assert heard == [94, 94]


def session_errors(folder: Path) -> str:
    """Return what the process wrote on its standard error."""
    return (folder / "stderr").read_text()


def test_rewrites_leak_nothing(start: Callable[[Scenario], NvmlSession]) -> None:
    """A hundred and fifty rewrites of a large scenario leave the process as large as it was."""
    healthy = scenarios.healthy()
    session = start(healthy)
    resident = "int(open('/proc/self/statm').read().split()[1]) * 4096"
    sizes = []
    for number in range(150):
        session.stage(healthy.having(0, {"power.usage": number}))
        assert session.ask("n.nvmlDeviceGetPowerUsage(device(0))") == number
        if number in (20, 149):
            sizes.append(session.ask(resident))
    assert sizes[1] - sizes[0] < 2 << 20
